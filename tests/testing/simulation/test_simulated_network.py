"""The simulated network: streams deliver all bytes in order, and break as real connections do."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import accumulate

import pytest
import trustme

from aioprod.testing.simulation import Network, SimulatedLoop, SimulationError, run
from tests.selection import needs_posix

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def network() -> Network:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop.network


def now() -> float:
    return asyncio.get_running_loop().time()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 20):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def serving(handler: Handler = echo, port: int = 0) -> AsyncIterator[str]:
    server = await asyncio.start_server(handler, "127.0.0.1", port)
    host, number = server.sockets[0].getsockname()
    try:
        yield f"{host}:{number}"
    finally:
        server.close()


async def connect(address: str) -> Streams:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


@asynccontextmanager
async def connected(
    handler: Handler = echo,
) -> AsyncIterator[tuple[str, asyncio.StreamReader, asyncio.StreamWriter]]:
    async with serving(handler) as address:
        reader, writer = await connect(address)
        await asyncio.sleep(0.1)  # until the server has accepted it
        try:
            yield address, reader, writer
        finally:
            writer.close()


@pytest.mark.parametrize("seed", range(8))
def test_split_writes_arrive_complete_and_in_order(seed: int) -> None:
    async def main() -> tuple[list[bytes], list[bytes]]:
        network().split_probability = 0.5
        rng = random.Random(seed)
        sent = [rng.randbytes(rng.choice((1, 2, 7, 100, 70_000))) for _ in range(50)]
        async with connected() as (_, reader, writer):

            async def read_all() -> list[bytes]:
                pieces = []
                while data := await reader.read(1 << 20):
                    pieces.append(data)
                return pieces

            reading = asyncio.get_running_loop().create_task(read_all())
            for data in sent:
                writer.write(data)
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.random() / 100)
            writer.write_eof()
            return sent, await reading

    sent, pieces = run(main(), seed)
    assert b"".join(pieces) == b"".join(sent)
    assert len(set(accumulate(map(len, pieces))) - set(accumulate(map(len, sent)))) > 5


def test_a_write_takes_the_latency_of_the_network() -> None:
    async def main() -> float:
        network().latency_seconds = (0.1, 0.1)
        async with connected() as (_, reader, writer):
            begun = now()
            writer.write(b"x")
            await reader.readexactly(1)
            return now() - begun

    assert run(main()) == pytest.approx(0.2, abs=0.001)


def test_a_reader_that_pauses_makes_the_writer_wait() -> None:
    async def main() -> int:
        may_read = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await may_read.wait()
            await echo(reader, writer)

        async with connected(slow) as (_, reader, writer):
            writer.write(bytes(2_000_000))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(writer.drain(), 10)
            assert writer.transport.get_write_buffer_size() > 1_000_000
            may_read.set()
            writer.write_eof()
            return len(await reader.read())

    assert run(main()) == 2_000_000


def test_connecting_without_a_listener() -> None:
    async def main() -> None:
        async with serving() as address:
            pass
        with pytest.raises(ConnectionRefusedError):
            await connect(address)
        with pytest.raises(socket.gaierror):
            await connect("nowhere.example:9092")
        async with serving(port=9_092), serving(port=9_093):
            with pytest.raises(OSError, match="in use"):
                await asyncio.start_server(echo, "127.0.0.1", 9_092)
            _, writer = await connect("localhost:9092")
            writer.close()

    run(main())


def test_a_close_arrives_after_the_last_byte() -> None:
    async def main() -> bytes:
        async def last_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"last bytes")
            writer.close()

        async with connected(last_bytes) as (_, reader, writer):
            got = await reader.read()
            for _ in range(3):  # TCP answers the first with a reset
                writer.write(b"unread")
                await asyncio.sleep(1)
            with pytest.raises(ConnectionResetError):
                await writer.drain()
            return got

    assert run(main()) == b"last bytes"


def test_a_protocol_without_eof_received_closes_at_the_end_of_the_stream() -> None:
    async def main() -> tuple[bool, int]:
        lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        class Plain(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.transport = transport

            def connection_lost(self, error: Exception | None) -> None:
                lost.set_result(error)

        async with serving(goodbye) as address:
            host, _, port = address.rpartition(":")
            _, protocol = await asyncio.get_running_loop().create_connection(Plain, host, int(port))
            assert await asyncio.wait_for(lost, 10) is None
            await asyncio.sleep(1)
            return protocol.transport.is_closing(), network().open_connections

    async def goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    assert run(main()) == (True, 0)


def test_a_server_that_closes_before_accepting_resets_the_connection() -> None:
    async def main() -> None:
        network().latency_seconds = (0.1, 0.1)
        async with serving() as address:
            reader, writer = await connect(address)
        with pytest.raises(ConnectionResetError):  # the server has just closed
            await asyncio.wait_for(reader.read(), 10)
        writer.close()

    run(main())


def test_a_cut_resets_both_ends_and_loses_packets_in_flight() -> None:
    async def main() -> tuple[int, str]:
        received, errors = bytearray(), list[str]()

        async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(1_000):
                    received.extend(data)
            except ConnectionResetError:
                errors.append("server")
            writer.close()

        async with connected(sink) as (address, reader, writer):
            for number in range(10):
                writer.write(bytes([number]))
            assert network().cut("client", address) == 1
            with pytest.raises(ConnectionResetError):
                await reader.read()
            await asyncio.sleep(1)
            assert list(received) == list(range(len(received)))
            assert network().open_connections == 0
            return len(received), errors[0]

    outcomes = [run(main(), seed) for seed in range(30)]
    assert {error for _, error in outcomes} == {"server"}
    assert {0, 10} < {count for count, _ in outcomes}


def test_a_lost_response_does_not_affect_the_next_connection() -> None:
    async def main() -> bytes:
        async with serving() as address:
            reader, writer = await connect(address)
            with network().cut_while_sending(address, delivered=0):
                writer.write(b"request")
                with pytest.raises(ConnectionResetError):
                    await reader.readexactly(7)
                writer.close()
                reader, writer = await connect(address)  # the fault hits once
                writer.write(b"request")
                got = await reader.readexactly(7)
                writer.close()
                return got

    assert run(main()) == b"request"


def test_a_request_is_cut_in_the_middle() -> None:
    async def main() -> int:
        received = bytearray()

        async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(1_000):
                    received.extend(data)
            except ConnectionResetError:
                writer.close()

        async with connected(sink) as (address, _, writer):
            network().cut_while_sending("client", address)
            writer.write(bytes(100))
            await asyncio.sleep(1)
            return len(received)

    assert len({run(main(), seed) for seed in range(20)} & set(range(1, 100))) > 10


def test_a_black_hole_delays_data_until_it_ends() -> None:
    async def main() -> tuple[bytes, float]:
        async with connected() as (address, reader, writer):
            hole = network().black_hole(address)
            writer.write(b"into the dark")
            dialing = asyncio.get_running_loop().create_task(connect(address))
            await asyncio.sleep(60)
            assert not dialing.done()
            assert network().open_connections == 1
            hole.heal()
            begun = now()
            got = await reader.readexactly(13)
            _, other = await dialing
            other.close()
            return got, now() - begun

    got, took = run(main())
    assert got == b"into the dark"
    assert took < 1


def test_connecting_into_a_black_hole_times_out() -> None:
    async def main() -> float:
        async with serving() as address:
            with network().black_hole(address):
                begun = now()
                with pytest.raises(TimeoutError, match="Connect call failed"):
                    await connect(address)
                return now() - begun

    assert run(main()) == pytest.approx(127, abs=0.1)


def test_a_one_way_partition_lets_the_other_direction_through() -> None:
    async def main() -> bytes:
        received = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(4)
            received.set()
            writer.write(b"pong")
            writer.close()

        async with connected(answer) as (address, reader, writer):
            with network().partition(address, "client", one_way=True):
                writer.write(b"ping")
                await asyncio.wait_for(received.wait(), 1)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.readexactly(4), 60)
            return await asyncio.wait_for(reader.readexactly(4), 1)

    assert run(main()) == b"pong"


def test_faults_affect_only_the_named_hosts() -> None:
    async def main() -> list[str]:
        net, reached = network(), list[str]()
        with net.host("broker"):
            server = await asyncio.start_server(echo, "127.0.0.1", 9_092)

        async def client(name: str) -> None:
            with net.host(name):
                reader, writer = await connect("127.0.0.1:9092")
            writer.write(b"x")
            await reader.readexactly(1)
            reached.append(name)
            writer.close()

        tasks = []
        with net.partition({"app-1", "app-2"}, "broker"):
            tasks = [
                asyncio.get_running_loop().create_task(client(f"app-{number}"))
                for number in (1, 2, 3)
            ]
            await asyncio.sleep(10)
            assert reached == ["app-3"]
        await asyncio.gather(*tasks)
        server.close()
        return sorted(reached)

    assert run(main()) == ["app-1", "app-2", "app-3"]


def test_a_machine_resets_old_connections_when_it_is_back() -> None:
    async def main() -> None:
        async with connected() as (address, reader, writer):
            with network().vanish(address):
                writer.write(b"x")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 60)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(1), 1)

    run(main())


def test_refuse_affects_only_new_connections() -> None:
    async def main() -> bytes:
        async with connected() as (address, reader, writer):
            with network().refuse(address):
                with pytest.raises(ConnectionRefusedError):
                    await connect(address)
                writer.write(b"x")
                return await reader.readexactly(1)

    assert run(main()) == b"x"


def test_a_slow_connection_fills_the_buffers() -> None:
    async def main() -> tuple[float, bool]:
        async with connected() as (address, reader, writer):
            with network().slow(100_000, "client", address, one_way=True):
                begun = now()
                writer.write(bytes(1_000_000))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(writer.drain(), 1)
                await reader.readexactly(1_000_000)
                return now() - begun, writer.transport.get_write_buffer_size() == 0

    took, empty = run(main())
    assert took == pytest.approx(10, abs=0.2)
    assert empty


def test_heal_ends_all_faults() -> None:
    async def main() -> float:
        net = network()
        async with connected() as (address, reader, writer):
            net.delay(5, 10)
            net.black_hole(address)
            net.refuse()
            net.heal()
            begun = now()
            writer.write(b"x")
            await reader.readexactly(1)
            return now() - begun

    assert run(main()) < 0.01


def test_cancelling_connect_leaves_no_connection() -> None:
    async def main() -> None:
        async with serving() as address:
            for after in (0.0001, 0.001, 0.002, 0.003):
                with pytest.raises(TimeoutError):
                    network().delay(0.0015, 0.0015)
                    await asyncio.wait_for(connect(address), after)
                network().heal()
                await asyncio.sleep(1)
                assert network().open_connections == 0

    run(main())


def test_an_error_in_a_protocol_closes_its_connection_and_is_reported() -> None:
    class Broken(asyncio.Protocol):
        lost: Exception | None = None

        def data_received(self, data: bytes) -> None:
            raise ValueError("broken")

        def connection_lost(self, error: Exception | None) -> None:
            self.lost = error

    async def main() -> tuple[Exception | None, object]:
        contexts: list[dict[str, object]] = []
        loop, protocol = asyncio.get_running_loop(), Broken()
        loop.set_exception_handler(lambda _, context: contexts.append(context))
        server = await loop.create_server(lambda: protocol, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        server.close()
        await server.wait_closed()
        return protocol.lost, contexts[0]["exception"]

    lost, reported = run(main())
    assert isinstance(lost, ValueError)
    assert lost is reported


def test_tasks_of_a_server_do_not_run_on_the_host_of_its_client() -> None:
    async def main() -> None:
        net = network()
        async with serving() as backend:

            async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                behind, out = await connect(backend)
                out.write(await reader.read(1))
                writer.write(await behind.read(1))
                writer.close()
                out.close()

            with net.host("proxy"):
                proxy = await asyncio.start_server(relay, "127.0.0.1", 9_000)
            with net.host("user"), net.partition("user", backend):
                reader, writer = await connect("127.0.0.1:9000")
                writer.write(b"x")
                assert await asyncio.wait_for(reader.read(1), 1) == b"x"
            writer.close()
            proxy.close()

    run(main())


def test_tls() -> None:
    authority = trustme.CA()
    server_context, client_context = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(),
    )
    authority.issue_cert("localhost").configure_cert(server_context)
    authority.configure_trust(client_context)

    async def main() -> bytes:
        network().split_probability = 0.5
        server = await asyncio.start_server(echo, "localhost", 0, ssl=server_context)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
        reader, writer = await asyncio.open_connection("localhost", port, ssl=client_context)
        writer.write(bytes(300_000))
        got = await reader.readexactly(300_000)
        writer.close()
        await writer.wait_closed()
        server.close()
        return got

    assert run(main()) == bytes(300_000)


@needs_posix
def test_unix_sockets_are_refused() -> None:
    with pytest.raises(SimulationError, match="simulation"):
        run(asyncio.open_unix_connection("/nowhere"))
