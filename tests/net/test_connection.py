"""A connection ends at the first problem, and all requests in flight fail."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from asyncio.trsock import TransportSocket

import pytest

from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aioprod.net import handshake
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.net.connection import Connection
from aioprod.net.handshake import connect
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.framing import encode_response
from aioprod.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.testing import EmbeddedCluster, delay, hold_answer
from aioprod.testing.broker import dispatcher
from aioprod.testing.broker.handlers import HANDLERS
from aioprod.testing.simulation import run
from tests.plain_server import serving


def config(**settings: int) -> ClientConfig:
    return ClientConfig(
        **{"request_timeout_ms": 2_000, "socket_connection_setup_timeout_ms": 2_000, **settings}  # type: ignore[arg-type]
    )


def address(broker: EmbeddedCluster) -> tuple[str, int]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


async def test_replies_find_their_requests(broker: EmbeddedCluster) -> None:
    connection = await connect(*address(broker), config())
    replies = await asyncio.gather(
        *(connection.request(MetadataRequest(topics=[])) for _ in range(20))
    )
    assert all(reply.brokers[0].port == address(broker)[1] for reply in replies)
    assert connection.in_flight == 0
    await connection.close()
    with pytest.raises(BrokerConnectionError, match="closed by this client"):
        await connection.request(MetadataRequest(topics=[]))


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x00\x00\x02ab",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x10" + b"\xff" * 16,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_garbage_ends_the_connection_with_a_protocol_error(garbage: bytes) -> None:
    async def talk_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(garbage)
        await writer.drain()
        await reader.read()

    async with serving(talk_nonsense) as port:
        async with asyncio.timeout(5):
            with pytest.raises(ProtocolError):
                await connect("127.0.0.1", port, config())


async def test_a_server_that_hangs_up(broker: EmbeddedCluster) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)

    async with serving(hang_up) as port:
        with pytest.raises(KafkaError, match=f"127.0.0.1:{port}"):
            await connect("127.0.0.1", port, config())


async def test_a_server_that_says_nothing() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(say_nothing) as port:
        with pytest.raises(RequestTimedOutError, match="ApiVersions"):
            await connect("127.0.0.1", port, config(socket_connection_setup_timeout_ms=100))


async def test_a_time_out_ends_the_connection_and_all_that_waits(broker: EmbeddedCluster) -> None:
    connection = await connect(*address(broker), config(request_timeout_ms=150))
    broker.on(ApiKey.METADATA, delay(30), times=1)
    results = await asyncio.gather(
        *(connection.request(MetadataRequest(topics=[])) for _ in range(3)), return_exceptions=True
    )
    assert all(isinstance(result, RequestTimedOutError) for result in results)
    assert connection.closed
    await connection.close()


async def test_a_waiter_that_is_cancelled_does_not_disturb_the_others(
    broker: EmbeddedCluster,
) -> None:
    connection = await connect(*address(broker), config())
    released = asyncio.Event()
    broker.on(ApiKey.METADATA, hold_answer(released), times=1)
    first = asyncio.create_task(connection.request(MetadataRequest(topics=[])))
    second = asyncio.create_task(connection.request(MetadataRequest(topics=[])))
    await asyncio.sleep(0)
    first.cancel()
    released.set()
    assert (await second).brokers
    await connection.close()


async def test_writing_to_a_socket_that_is_gone_fails_the_request(broker: EmbeddedCluster) -> None:
    connection = await connect(*address(broker), config())
    connection._stream.abort()
    with pytest.raises(BrokerConnectionError, match="closed by the broker"):
        await connection.request(MetadataRequest(topics=[]))
    connection.write([b"no answer expected"])
    assert connection.closed
    await connection.close()


async def test_an_idle_connection_is_closed(broker: EmbeddedCluster) -> None:
    ended = asyncio.Event()
    connection = await connect(*address(broker), config(), on_closed=lambda _: ended.set())
    connection.close_when_idle(30)
    await connection.request(MetadataRequest(topics=[]))
    async with asyncio.timeout(5):
        await ended.wait()
    assert "connections_max_idle_ms=30" in str(connection.error)


async def test_versions_that_do_not_meet(broker: EmbeddedCluster) -> None:
    connection: Connection = await connect(*address(broker), config())
    connection.versions[ApiKey.PRODUCE] = (90, 95)
    with pytest.raises(
        UnsupportedVersionError, match="ProduceRequest versions 90 to 95, this client 3 to"
    ):
        connection.pick_version(ProduceRequest)
    del connection.versions[ApiKey.METADATA]
    with pytest.raises(UnsupportedVersionError):
        await connection.request(MetadataRequest(topics=[]))
    await connection.close()


async def test_one_connection_is_shared_and_comes_back(broker: EmbeddedCluster) -> None:
    brokers = Brokers(config(reconnect_backoff_ms=1), random.Random(1))
    host, port = address(broker)
    brokers.update_nodes({1: BrokerAddress(1, host, port)})
    first, second = await asyncio.gather(brokers.connection(1), brokers.connection(1))
    assert first is second is brokers.live(1)
    first.abort(BrokerConnectionError("cut"))
    assert brokers.live(1) is None
    assert await brokers.connection(1) is not first
    await brokers.close()
    with pytest.raises(BrokerConnectionError):
        await brokers.connection(1)


async def test_all_bootstrap_addresses_are_tried_and_named(broker: EmbeddedCluster) -> None:
    good = ClientConfig(bootstrap_servers=("127.0.0.1:1", broker.bootstrap_servers, "127.0.0.1:2"))
    brokers = Brokers(good, random.Random(3))
    assert (await brokers.any()).address == broker.bootstrap_servers
    await brokers.close()
    brokers = Brokers(ClientConfig(bootstrap_servers=("127.0.0.1:1",)), random.Random(3))
    with pytest.raises(BrokerConnectionError, match=r"127\.0\.0\.1:1: Connection refused"):
        await brokers.any()
    brokers = Brokers(
        ClientConfig(bootstrap_servers=("127.0.0.1:1", "127.0.0.1:2")), random.Random(3)
    )
    with pytest.raises(
        BrokerConnectionError, match=r"127\.0\.0\.1:(1.*127\.0\.0\.1:2|2.*127\.0\.0\.1:1)"
    ):
        await brokers.any()
    await brokers.close()


def test_backoff_doubles_with_jitter_up_to_its_limit() -> None:
    backoff = Backoff(100, 1_000, random.Random(5))
    assert backoff.seconds(0) == 0
    for failures, middle in [(1, 0.1), (2, 0.2), (3, 0.4), (5, 1.0), (10_000, 1.0)]:
        pauses = [backoff.seconds(failures) for _ in range(50)]
        assert all(middle * 0.8 <= pause <= middle * 1.2 for pause in pauses)
        assert len(set(pauses)) > 10


@pytest.mark.parametrize("newest", [3, 0])
async def test_a_broker_that_does_not_know_the_newest_apiversions(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    # Brokers then answer in version 0, and since Kafka 2.4 with the versions that they support
    # (KIP-511).
    old = HANDLERS[ApiKey.API_VERSIONS]._replace(versions=(0, newest))
    monkeypatch.setitem(HANDLERS, ApiKey.API_VERSIONS, old)
    known = [ApiVersion(ApiKey.API_VERSIONS, 0, newest)] if newest else []
    monkeypatch.setattr(
        dispatcher,
        "unsupported_version",
        lambda _: ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, known),
    )
    connection = await connect(*address(broker), config())
    assert [seen.api_version for seen in broker.requests] == [
        ApiVersionsRequest.MAX_VERSION,
        newest,
    ]
    assert (await connection.request(MetadataRequest(topics=[]))).brokers
    assert bool(connection.finalized_features) == (newest == 3)
    await connection.close()


@pytest.mark.parametrize(
    ("version", "reported"), [("9.8.7", "9.8.7"), ("9.8.dev1+g1a2b.local", "9.8.dev1-g1a2b.local")]
)
async def test_brokers_are_reported_the_version_of_the_package(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, version: str, reported: str
) -> None:
    monkeypatch.setattr(handshake, "__version__", version)
    # The broker refuses a text that Kafka refuses.
    rule = broker.on(
        ApiKey.API_VERSIONS,
        delay(0),
        where=lambda request: (
            isinstance(request, ApiVersionsRequest)
            and request.client_software_name == "aioprod"
            and request.client_software_version == reported
        ),
    )
    connection = await connect(*address(broker), config())
    assert rule.used == 1
    await connection.close()


async def test_close_sends_what_gets_no_answer_before(broker: EmbeddedCluster) -> None:
    received = 0
    complete = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        while data := await reader.read(65_536):
            received += len(data)
        complete.set()

    async with serving(take) as port:
        connection = await Connection.open(
            "127.0.0.1",
            port,
            client_id="c",
            request_timeout_ms=1_000,
            setup_timeout_ms=1_000,
            send_buffer_bytes=65_536,
        )
        # More than the sockets hold, and little enough for the second that close() takes at most.
        connection.write([b"x" * 1_000_000])
        assert connection.unsent_bytes
        await connection.close()
        async with asyncio.timeout(5):
            await complete.wait()
    assert received == 1_000_000


async def test_close_waits_no_longer_than_a_second_for_a_broker_that_does_not_read() -> None:
    done = asyncio.Event()

    async def read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()

    async with serving(read_nothing) as port:
        connection = await Connection.open(
            "127.0.0.1", port, client_id="c", request_timeout_ms=1_000, setup_timeout_ms=1_000
        )
        connection.write([b"x" * 20_000_000])
        async with asyncio.timeout(5):
            await connection.close()
        assert connection.closed
        done.set()


async def reach_a_broker_that_hangs_up_at_first() -> None:
    answer = encode_response(
        ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.METADATA, 0, 12)]), 3, 0
    )
    patient = asyncio.Event()

    async def answer_and_go(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readexactly(12)
        writer.write(answer[:4] + request[8:12] + answer[8:])
        if patient.is_set():
            await reader.read()

    async with serving(answer_and_go) as port:
        brokers = Brokers(
            config(reconnect_backoff_ms=1, reconnect_backoff_max_ms=1), random.Random(1)
        )
        brokers.update_nodes({1: BrokerAddress(1, "127.0.0.1", port)})
        for _ in range(20):
            with contextlib.suppress(BrokerConnectionError):
                await brokers.connection(1)
            await asyncio.sleep(1.0)
            assert brokers.live(1) is None
        patient.set()
        assert not (await brokers.connection(1)).closed
        await brokers.close()


async def test_no_task_of_a_connection_is_left_when_it_has_failed() -> None:
    async def answer_junk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(b"\0\0\0\4junk")
        await reader.read()

    async with serving(answer_junk) as port:
        with pytest.raises(ProtocolError):
            await connect("127.0.0.1", port, config())
        assert "aioprod-connection" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_a_silent_handshake_names_its_own_limit() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(say_nothing) as port:
        with pytest.raises(KafkaError, match="within socket_connection_setup_timeout_ms=100"):
            await connect("127.0.0.1", port, config(socket_connection_setup_timeout_ms=100))


@pytest.mark.asyncio_loop
async def test_a_socket_that_refuses_options_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS it does so if the broker has reset the connection."""
    ended = asyncio.Event()

    async def wait_for_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        ended.set()

    def refuse(*option: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(TransportSocket, "setsockopt", refuse)
    async with serving(wait_for_end) as port:
        with pytest.raises(BrokerConnectionError, match=f"127.0.0.1:{port}: Invalid argument"):
            await connect("127.0.0.1", port, config())
        await asyncio.wait_for(ended.wait(), 10)
    assert "aioprod-connection" not in {task.get_name() for task in asyncio.all_tasks()}


def test_a_connection_that_ends_with_its_first_answer_is_not_taken_for_a_live_one() -> None:
    """Found by the simulation: the stream ended before the callback was set, and the client never
    connected to the broker again.
    """
    for seed in range(10):
        # A loop that reads again at once (uvloop) sees both in one turn.
        run(reach_a_broker_that_hangs_up_at_first(), seed, hostile=True)
