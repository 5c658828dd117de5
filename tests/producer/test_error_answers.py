"""Every API that a producer without transactions uses responds with every code, and with garbage:
the producer continues or fails permanently, and nothing hangs. The APIs of transactions are in
``transactions/test_transaction_faults.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from aioprod import (
    BrokerError,
    ErrorCode,
    FatalProducerError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    Producer,
)
from aioprod.config.addresses import split_address
from aioprod.errors import ProtocolError, RequestTimedOutError
from aioprod.metrics import ProducerObserver
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.init_producer_id import InitProducerIdResponse
from aioprod.protocol.messages.metadata import MetadataResponse
from aioprod.testing import EmbeddedCluster, change_answer, drop_before, fail
from tests.waiting import until

#: All codes of Kafka 4.1, and some without a name.
CODES = [code for code in ErrorCode if code != ErrorCode.NONE] + [
    cast("ErrorCode", number) for number in (998, 999, -7)
]
LIMIT_SECONDS = 10.0
FAST: dict[str, Any] = {
    "linger_ms": 0,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
}


async def outcome(sending: Any) -> object:
    """Return the outcome of a send or a delivery."""
    try:
        return await sending
    except KafkaError as error:
        return error


@asynccontextmanager
async def producer_of(broker: EmbeddedCluster, **settings: Any) -> AsyncIterator[Producer]:
    """A producer that a failed test does not wait for."""
    producer = Producer(broker.bootstrap_servers, **{**FAST, **settings})
    try:
        await producer.start()
        yield producer
        await producer.close()
    finally:
        await producer.close(0)


async def test_metadata_of_a_new_topic(broker: EmbeddedCluster) -> None:
    async with producer_of(broker, max_block_ms=2_000) as producer:
        for code in CODES:
            async with asyncio.timeout(LIMIT_SECONDS):
                topic = f"t{int(code)}".replace("-", "m")
                rule = broker.on(ApiKey.METADATA, fail(code, topic=topic), times=1)
                first = await outcome(producer.send_and_wait(topic, b"first"))
                assert rule.used == 1
                if ErrorCode.of(code).retriable:
                    assert not isinstance(first, KafkaError), f"{code!r} passes"
                else:
                    assert isinstance(
                        first,
                        InvalidTopicError
                        if code == ErrorCode.INVALID_TOPIC_EXCEPTION
                        else BrokerError,
                    ), f"{code!r}: {first!r}"
                    assert ErrorCode.of(code).name in str(first)
                await producer.send_and_wait(topic, b"second")


async def test_metadata_of_a_topic_that_is_known(broker: EmbeddedCluster) -> None:
    """A topic in use stays usable, whatever error a single refresh returns for it."""
    async with producer_of(broker) as producer:
        await producer.send_and_wait("t", b"first")
        for code in CODES:
            async with asyncio.timeout(LIMIT_SECONDS):
                rule = broker.on(ApiKey.METADATA, fail(code), times=1)
                await producer._metadata.await_update(producer._metadata.request_update())
                assert rule.used == 1
                await producer.send_and_wait("t", b"%d" % int(code))
    assert len(broker.records("t")) == 1 + len(CODES)


async def test_metadata_as_a_whole(broker: EmbeddedCluster) -> None:
    """The code of the whole answer (version 13), which then names neither brokers nor topics."""
    async with producer_of(broker) as producer:
        await producer.send_and_wait("t", b"first")
        for number, code in enumerate(CODES):

            def refuse(answer: MetadataResponse, code: ErrorCode = code) -> None:
                answer.error_code, answer.brokers, answer.topics = int(code), [], []

            connection = producer._brokers.live(1)
            async with asyncio.timeout(LIMIT_SECONDS):
                rule = broker.on(ApiKey.METADATA, change_answer(refuse), times=2)
                await producer.send_and_wait(f"t{number}", b"first")
                assert rule.used == 2
            if code != ErrorCode.REBOOTSTRAP_REQUIRED:
                assert producer._brokers.live(1) is connection, (
                    "an answer without brokers does not make those that are known disappear"
                )


@pytest.mark.virtual_time
async def test_metadata_that_stays_refused_ends_at_max_block(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    for code in (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        async with asyncio.timeout(LIMIT_SECONDS), producer_of(broker, max_block_ms=50) as producer:
            broker.on(ApiKey.METADATA, fail(code), times=None)
            assert isinstance(
                error := await outcome(producer.send_and_wait("t", b"x")), MetadataTimeoutError
            )
            assert ErrorCode.of(code).name in str(error)
            broker.clear_rules()


UNREADABLE = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


async def test_api_versions_at_the_start(broker: EmbeddedCluster) -> None:
    for code in CODES:
        async with asyncio.timeout(LIMIT_SECONDS):
            rule = broker.on(ApiKey.API_VERSIONS, fail(code), times=1)
            producer = Producer(broker.bootstrap_servers, **FAST)
            error = await outcome(producer.start())
            assert rule.used == 1
            # Whatever the form of the answer, the client asks again in an older version.
            if ErrorCode.of(code) in UNREADABLE:
                assert error is None
            else:
                assert isinstance(error, KafkaError)
                assert ErrorCode.of(code).name in str(error)
                await until(lambda: not broker.connection_count(1))
                await producer.start()
            await producer.send_and_wait("t", b"%d" % int(code))
            await producer.close()
    assert len(broker.records("t")) == len(CODES)


async def test_api_versions_of_a_connection_that_has_to_be_made_again(
    broker: EmbeddedCluster,
) -> None:
    async with producer_of(broker) as producer:
        await producer.send_and_wait("t", b"first")
        for code in CODES:
            async with asyncio.timeout(LIMIT_SECONDS):
                broker.on(ApiKey.PRODUCE, drop_before(), times=1)
                rule = broker.on(ApiKey.API_VERSIONS, fail(code), times=1)
                await producer.send_and_wait("t", b"%d" % int(code))
                assert rule.used == 1
    assert [record.value for record in broker.records("t")] == [
        b"first",
        *(b"%d" % int(code) for code in CODES),
    ]


async def test_init_producer_id(broker: EmbeddedCluster) -> None:
    for code in CODES:

        def refuse(answer: InitProducerIdResponse, code: ErrorCode = code) -> None:
            answer.error_code, answer.producer_id, answer.producer_epoch = int(code), -1, -1

        async with asyncio.timeout(LIMIT_SECONDS), producer_of(broker) as producer:
            rule = broker.on(ApiKey.INIT_PRODUCER_ID, change_answer(refuse), times=1)
            sent = await outcome(producer.send_and_wait("t", b"x"))
            assert rule.used == 1
            if ErrorCode.of(code).retriable:
                assert not isinstance(sent, KafkaError), f"{code!r} passes"
                continue
            assert isinstance(sent, FatalProducerError), f"{code!r}: {sent!r}"
            assert ErrorCode.of(code).name in str(sent) and "enable_idempotence=False" in str(
                sent
            ), "it says what to do"
            assert isinstance(await outcome(producer.send("t", b"y")), FatalProducerError)
            assert producer._pool.available == producer.config.buffer_memory


@pytest.mark.parametrize("idempotent", [True, False])
async def test_produce(broker: EmbeddedCluster, idempotent: bool) -> None:
    for code in CODES:
        async with (
            asyncio.timeout(LIMIT_SECONDS),
            producer_of(broker, enable_idempotence=idempotent) as producer,
        ):
            rule = broker.on(ApiKey.PRODUCE, fail(code), times=1)
            both = [await producer.send("t", b"one"), await producer.send("t", b"two")]
            await producer.flush()
            assert rule.used == 1
            first = both[0].exception()
            if isinstance(first, FatalProducerError):
                assert "create a new" in str(first), "it says what to do"
                assert ErrorCode.of(code).name in str(first) and isinstance(
                    await outcome(producer.send("t", b"three")), FatalProducerError
                )
            else:
                assert (
                    first is None
                    or ErrorCode.of(code).name in str(first)
                    or "max.message.bytes" in str(first)
                )
                await producer.send_and_wait("t", b"three")
                assert broker.records("t")[-1].value == b"three"
            assert producer._pool.available == producer.config.buffer_memory


# -- garbage ---------------------------------------------------------------------------------------


class Garbler:
    """Stands between client and broker; passes everything on, but for ``spoil`` answers, which
    become random bytes.

    Attributes:
        connections: how many there have been.
        spoil: how many of the next pieces of the broker's are replaced.
    """

    def __init__(self, rng: random.Random, target: str) -> None:
        self._rng = rng
        self._target = split_address(target)
        self.connections = 0
        self.spoil = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Garbler:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        broker_reader, broker_writer = await asyncio.open_connection(*self._target)
        answers = asyncio.ensure_future(self._pass_on(broker_reader, writer, answers=True))
        with contextlib.suppress(asyncio.CancelledError):
            await self._pass_on(reader, broker_writer)
        answers.cancel()
        broker_writer.close()
        writer.close()
        await asyncio.wait([answers])
        self._tasks.discard(task)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if answers and self.spoil:
                    self.spoil -= 1
                    data = self._garbage(data)
                writer.write(data)

    def _garbage(self, data: bytes) -> bytes:
        """Noise; or a true frame with noise in it; or a frame of a size that can't be."""
        way = self._rng.randrange(4)
        if way == 0:
            return self._rng.randbytes(self._rng.randrange(4, 200))
        if way == 1:
            return data[:4] + self._rng.randbytes(len(data) - 4)
        if way == 2:
            return (
                self._rng.choice(
                    [
                        b"\xff\xff\xff\xff",
                        b"\x7f\xff\xff\xff",
                        b"\0\0\0\0",
                        b"HTTP/1.1 400 Bad Request\r\n\r\n",
                    ]
                )
                + data
            )
        return data[:8] + bytes(255 - byte for byte in data[8:])


class Listening(ProducerObserver):
    def __init__(self) -> None:
        self.ends: list[tuple[int, Exception | None]] = []

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        if not opened:
            self.ends.append((node_id, error))


@pytest.fixture
async def two() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic("t", 2)
        yield broker


@pytest.mark.virtual_time
@pytest.mark.parametrize("seed", range(12))
async def test_garbage_ends_that_connection_and_nothing_else(
    two: EmbeddedCluster, seed: int
) -> None:
    rng = random.Random(seed)
    listening = Listening()
    async with asyncio.timeout(LIMIT_SECONDS), Garbler(rng, two.address(1)) as garbler:

        def lead_through_it(answer: MetadataResponse) -> None:
            for node in answer.brokers:
                if node.node_id == 1:
                    node.port = garbler.port

        two.on(ApiKey.METADATA, change_answer(lead_through_it), times=None)
        # A size that noise makes may be a possible one; then only the timeout ends the wait
        # for the rest.
        settings = {**FAST, "request_timeout_ms": 150, "socket_connection_setup_timeout_ms": 150}
        async with Producer(two.address(2), observers=[listening], **settings) as producer:
            for partition in (0, 1):
                await producer.send_and_wait("t", b"first", partition=partition)
            other = producer._brokers.live(2)
            ended = len(listening.ends)
            for number in range(6):
                garbler.spoil = rng.randrange(1, 3)
                for partition in (0, 1):
                    await producer.send_and_wait("t", b"%d" % number, partition=partition)
            broken = [error for node_id, error in listening.ends[ended:] if node_id == 1]
            assert broken and all(
                isinstance(error, ProtocolError | RequestTimedOutError) for error in broken
            ), f"seed {seed}: {broken}"
            assert any(isinstance(error, ProtocolError) for error in broken), (
                f"seed {seed}: {broken}"
            )
            assert producer._brokers.live(2) is other and garbler.connections > 1
    for partition in (0, 1):
        assert [record.value for record in two.records("t", partition)] == [
            b"first",
            *(b"%d" % number for number in range(6)),
        ]
