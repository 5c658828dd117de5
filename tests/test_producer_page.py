"""docs/producer.md: its code works, its table has every error, and each appears where it says."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp.test_utils import TestClient, TestServer

import aioprod
from aioprod import (
    AbortableTransactionError,
    ErrorCode,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from aioprod.config.producer import ProducerConfig
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import (
    BrokerSecurity,
    EmbeddedCluster,
    ThreadedCluster,
    drop_before,
    fail,
    hold,
)
from tests.testing.doc_blocks import python_blocks, run_block, table_rows

PAGE = (Path(__file__).parent.parent / "docs" / "producer.md").read_text()
# The texts by which the tests below choose the page's blocks.
MAIN, LIMITS, STORE = "print(metadata.topic", "max_block_ms=1_000,  ", "async def store"
FASTAPI, AIOHTTP, WORKERS = "FastAPI(", "web.Application()", "send_many"
TABLES, TRANSACTION = "send_arrow", "producer.transaction()"

# Errors that a producer never raises; a new error has to be put here or on the page.
OF_OTHERS = {
    "AdminClosedError",
    "CommitFailedError",
    "ConcurrentUseError",
    "ConsumerClosedError",
    "ConsumerStateError",
    "CorruptRecordError",
    "DeserializationError",
    "InvalidOffsetError",
    "KafkaError",
    "LogTruncationError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "RebalanceInProgressError",
    "TopicRecreatedError",
    "WakeupError",
}
WAYS = {"constructor", "start", "send", "delivery", "transaction"}


def error_rows() -> dict[str, set[str]]:
    """Each error of the table with where it appears."""
    rows = [row for row in table_rows(PAGE) if re.fullmatch(r"`\w+Error`", row[0])]
    found = {row[0].strip("`"): set(row[1].split(", ")) for row in rows}
    assert len(found) == len(rows)
    return found


def run(containing: str, bootstrap_servers: str = "") -> dict[str, Any]:
    return run_block("producer.md", PAGE, containing, bootstrap_servers)


def test_each_block_is_run_by_a_test() -> None:
    texts = (MAIN, LIMITS, STORE, FASTAPI, AIOHTTP, WORKERS, TABLES, TRANSACTION)
    blocks = python_blocks(PAGE)
    assert [[text in block for block in blocks].count(True) for text in texts] == [1] * len(blocks)


def test_a_record_is_sent(
    threaded_broker: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    run(MAIN, threaded_broker.bootstrap_servers)
    assert capsys.readouterr().out == "orders 0 0\n"


def test_limits_of_waiting_are_accepted() -> None:
    assert run(LIMITS, "localhost:9092")["producer"].config.max_block_ms == 1_000


@pytest.mark.virtual_time
async def test_what_store_shows(broker: EmbeddedCluster) -> None:
    store = run(STORE)["store"]
    async with _quick(broker, request_timeout_ms=200, delivery_timeout_ms=400) as producer:
        assert await store(producer, "17", b"two apples") == "stored"
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        assert (await store(producer, "17", b"")).startswith("not stored: ")
        with _kept(broker, ApiKey.PRODUCE):
            assert await store(producer, "17", b"") == "unknown: it may be stored"
    async with _quick(broker, buffer_memory=20_000) as producer:
        with _kept(broker, ApiKey.PRODUCE):
            await producer.send("orders", bytes(15_000))
            assert await store(producer, "17", bytes(15_000)) == "busy: try again later"


async def test_the_fastapi_application(broker: EmbeddedCluster) -> None:
    app = run(FASTAPI, broker.bootstrap_servers)["app"]
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            stored = await client.post("/orders/17", content=b"two apples")
            assert (stored.status_code, stored.json()) == (201, {"partition": 0, "offset": 0})
            assert (await client.post("/clicks/home")).status_code == 202
            refusal = fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="orders")
            broker.on_every(ApiKey.PRODUCE, refusal)
            assert (await client.post("/orders/18", content=b"")).status_code == 503
    assert broker.records("orders")[0].key == b"17"


async def test_the_aiohttp_application(broker: EmbeddedCluster) -> None:
    app = run(AIOHTTP, broker.bootstrap_servers)["app"]
    async with TestClient(TestServer(app)) as client:
        answer = await client.post("/orders", data=b"two apples")
        assert (answer.status, await answer.json()) == (201, {"offset": 0})
    assert [record.value for record in broker.records("orders")] == [b"two apples"]


def test_workers_and_tables(threaded_broker: ThreadedCluster) -> None:
    run(WORKERS, threaded_broker.bootstrap_servers)
    values = [record.value for record in threaded_broker.records("readings")]
    assert values == [*(str(n).encode() for n in range(1_000)), b"21.5", b"19.0"]
    run(TABLES, threaded_broker.bootstrap_servers)
    assert len(threaded_broker.records("baskets")) == 2


def test_the_transaction_is_committed(threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("orders")
    run(TRANSACTION, threaded_broker.bootstrap_servers)
    for topic in ("payments", "shipments"):
        assert len(threaded_broker.records(topic, committed_only=True)) == 1


def test_the_defaults_of_tuning_are_those_of_the_code() -> None:
    rows = [row for row in table_rows(PAGE) if re.fullmatch(r"`[a-z_]+`", row[0])]
    assert len(rows) == 7
    for row in rows:
        default = ProducerConfig.__dataclass_fields__[row[0].strip("`")].default
        assert eval(row[1].strip("`")) == default, row[0]


def test_the_table_has_every_error_of_a_producer() -> None:
    errors = {name for name, each in vars(aioprod.errors).items() if _is_error(each)}
    rows = error_rows()
    assert set(rows) | OF_OTHERS == errors
    assert not set(rows) & OF_OTHERS
    assert [name for name, ways in rows.items() if not ways or ways - WAYS] == []


def _is_error(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, KafkaError)


# -- where each error appears --------------------------------------------------------------------

Occasion = Callable[[EmbeddedCluster], Awaitable[object]]
OCCASIONS: dict[tuple[str, str], Occasion] = {}


def occasion(error: str, way: str) -> Callable[[Occasion], Occasion]:
    """Register what leads to an error, which appears in a way."""

    def register(function: Occasion) -> Occasion:
        OCCASIONS[error, way] = function
        return function

    return register


def _quick(broker: EmbeddedCluster, **settings: Any) -> Producer:
    """A producer that waits for nothing for long."""
    limits = {
        "max_block_ms": 200,
        "request_timeout_ms": 2_000,
        "delivery_timeout_ms": 2_000,
        "linger_ms": 0,
    }
    return Producer(broker.bootstrap_servers, **{**limits, **settings})


@contextlib.asynccontextmanager
async def _running(broker: EmbeddedCluster, **settings: Any) -> AsyncIterator[Producer]:
    producer = _quick(broker, **settings)
    try:
        await producer.start()
        yield producer
    finally:
        await producer.close(0)


@contextlib.contextmanager
def _kept(broker: EmbeddedCluster, api: ApiKey) -> Any:
    rule = broker.on(api, hold(), times=None)
    try:
        yield
    finally:
        rule.cancel()
        rule.release()


async def _delivery_of(sent: Awaitable[aioprod.Delivery]) -> object:
    """The outcome of a delivery; an error of the call itself is another one."""
    try:
        delivery = await sent
    except KafkaError as error:
        raise AssertionError("raised by send") from error
    return await delivery


@occasion("ConfigError", "constructor")
async def _(broker: EmbeddedCluster) -> object:
    return Producer(broker.bootstrap_servers, acks=1)


@occasion("BrokerConnectionError", "start")
async def _(broker: EmbeddedCluster) -> object:
    await broker.stop_all()
    async with _running(broker):
        return None


@occasion("AuthenticationError", "start")
async def _(broker: EmbeddedCluster) -> object:
    async with EmbeddedCluster(security=BrokerSecurity(users={"anna": "right"})) as guarded:
        login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "anna"}
        protocol = {"security_protocol": "SASL_PLAINTEXT", "sasl_password": "wrong"}
        async with _running(guarded, **login, **protocol):
            return None


@occasion("AuthenticationError", "delivery")
async def _(broker: EmbeddedCluster) -> object:
    login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "anna", "sasl_password": "right"}
    users = {"anna": "right"}
    async with EmbeddedCluster(security=BrokerSecurity(users=users)) as guarded:
        guarded.on(ApiKey.INIT_PRODUCER_ID, drop_before())
        async with _running(guarded, security_protocol="SASL_PLAINTEXT", **login) as producer:
            guarded.on_every(ApiKey.SASL_AUTHENTICATE, fail(ErrorCode.SASL_AUTHENTICATION_FAILED))
            return await _delivery_of(producer.send("t", b""))


@occasion("KafkaTimeoutError", "start")
async def _(broker: EmbeddedCluster) -> object:
    with _kept(broker, ApiKey.INIT_PRODUCER_ID):
        async with _running(broker, transactional_id="t"):
            return None


@occasion("BrokerError", "start")
async def _(broker: EmbeddedCluster) -> object:
    broker.on_every(ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    async with _running(broker, transactional_id="t"):
        return None


@occasion("FatalProducerError", "start")
async def _(broker: EmbeddedCluster) -> object:
    broker.on_every(ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
    async with _running(broker, transactional_id="t"):
        return None


@occasion("SerializationError", "send")
async def _(broker: EmbeddedCluster) -> object:
    async with _running(broker) as producer:
        return await producer.send("t", object())


@occasion("BufferExhaustedError", "send")
async def _(broker: EmbeddedCluster) -> object:
    async with _running(broker, buffer_memory=20_000) as producer:
        with _kept(broker, ApiKey.PRODUCE):
            await producer.send("t", bytes(15_000))
            return await producer.send("t", bytes(15_000))


@occasion("ProducerClosedError", "send")
async def _(broker: EmbeddedCluster) -> object:
    return await _quick(broker).send("t", b"")


@occasion("ProducerClosedError", "start")
async def _(broker: EmbeddedCluster) -> None:
    producer = _quick(broker)
    await producer.close()
    await producer.start()


@occasion("ProducerClosedError", "transaction")
async def _(broker: EmbeddedCluster) -> None:
    async with _running(broker, transactional_id="t") as producer:
        await producer.begin_transaction()
    await producer.commit_transaction()


@occasion("WrongEventLoopError", "send")
async def _(broker: EmbeddedCluster) -> object:
    async with _running(broker) as producer:
        with ThreadPoolExecutor(1) as other:
            return other.submit(lambda: asyncio.run(producer.send_and_wait("t", b""))).result()


@occasion("TransactionStateError", "send")
async def _(broker: EmbeddedCluster) -> object:
    async with _running(broker, transactional_id="t") as producer:
        return await producer.send("t", b"")


@occasion("TransactionStateError", "transaction")
async def _(broker: EmbeddedCluster) -> None:
    async with _running(broker) as producer:
        await producer.begin_transaction()


def _of_a_delivery(error: str, topic: str = "t", value: bytes = b"", **settings: Any) -> None:
    arguments = settings.pop("arguments", {})
    rule: tuple[ApiKey, ErrorCode] | None = settings.pop("rule", None)

    async def occur(broker: EmbeddedCluster) -> object:
        async with _running(broker, **settings) as producer:
            if rule is not None:
                broker.on_every(rule[0], fail(rule[1]))
            return await _delivery_of(producer.send(topic, value, **arguments))

    OCCASIONS[error, "delivery"] = occur


_of_a_delivery("RecordTooLargeError", value=bytes(2_000_000))
_of_a_delivery("InvalidTopicError", topic="no topic")
_of_a_delivery("InvalidPartitionError", arguments={"partition": 99})
_of_a_delivery("MetadataTimeoutError", rule=(ApiKey.METADATA, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
_of_a_delivery("BrokerError", rule=(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
_of_a_delivery("FatalProducerError", rule=(ApiKey.PRODUCE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
_of_a_delivery(
    "DeliveryTimeoutError",
    request_timeout_ms=200,
    delivery_timeout_ms=300,
    rule=(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS),
)


@occasion("RequestTimedOutError", "delivery")
async def _(broker: EmbeddedCluster) -> object:
    async with _running(
        broker, enable_idempotence=False, retries=0, request_timeout_ms=200
    ) as producer:
        with _kept(broker, ApiKey.PRODUCE):
            return await _delivery_of(producer.send("t", b""))


@occasion("ProducerClosedError", "delivery")
async def _(broker: EmbeddedCluster) -> object:
    with _kept(broker, ApiKey.PRODUCE):
        async with _running(broker) as producer:
            delivery = await producer.send("t", b"")
        return await delivery


@occasion("TransactionAbortedError", "delivery")
async def _(broker: EmbeddedCluster) -> object:
    limits = {"linger_ms": 1_000, "request_timeout_ms": 500}
    async with _running(broker, transactional_id="t", **limits) as producer:
        await producer.begin_transaction()
        delivery = await producer.send("t", b"")
        await producer.abort_transaction()
        return await delivery


@occasion("AbortableTransactionError", "transaction")
async def _(broker: EmbeddedCluster) -> None:
    async with _running(broker, transactional_id="t") as producer:
        await producer.begin_transaction()
        broker.on_every(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        await producer.send("t", b"")
        await producer.commit_transaction()


@occasion("AbortableTransactionError", "send")
async def _(broker: EmbeddedCluster) -> object:
    async with _running(broker, transactional_id="t") as producer:
        await producer.begin_transaction()
        broker.on_every(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with contextlib.suppress(KafkaError):
            await producer.send_and_wait("t", b"")
        return await producer.send("t", b"")


@occasion("AbortableTransactionError", "delivery")
async def _(broker: EmbeddedCluster) -> object:
    limits = {"linger_ms": 1_000, "request_timeout_ms": 500}
    async with _running(broker, transactional_id="t", **limits) as producer:
        await producer.begin_transaction()
        broker.on_every(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="t"))
        lingering = await producer.send("u", b"")
        await producer.send_many("t", [bytes(20_000)] * 2)
        return await lingering


@occasion("ProducerFencedError", "transaction")
async def _(broker: EmbeddedCluster) -> None:
    async with _running(broker, transactional_id="t", max_block_ms=2_000) as older:
        await older.begin_transaction()
        async with _running(broker, transactional_id="t", max_block_ms=2_000):
            await older.send("t", b"")
            with contextlib.suppress(AbortableTransactionError):
                await older.commit_transaction()
            await older.abort_transaction()
            await older.begin_transaction()


@occasion("KafkaTimeoutError", "transaction")
async def _(broker: EmbeddedCluster) -> None:
    async with _running(broker, transactional_id="t") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"")
        with _kept(broker, ApiKey.END_TXN):
            await producer.commit_transaction()


@occasion("SerializationError", "transaction")
async def _(broker: EmbeddedCluster) -> None:
    async with _running(broker, transactional_id="t") as producer:
        await producer.begin_transaction()
        offsets = {TopicPartition("t", 0): OffsetAndMetadata(-1)}
        await producer.send_offsets_to_transaction(offsets, "g")


@pytest.mark.virtual_time
@pytest.mark.parametrize(("error", "way"), OCCASIONS, ids=lambda part: part)
async def test_an_error_appears_where_the_table_says(
    broker: EmbeddedCluster, error: str, way: str
) -> None:
    assert way in error_rows()[error]
    broker.create_topic("t", 1)
    async with asyncio.timeout(10):
        with pytest.raises(KafkaError) as raised:
            await OCCASIONS[error, way](broker)
    assert type(raised.value).__name__ == error


def test_nearly_every_error_of_the_table_has_an_occasion() -> None:
    untried = set(error_rows()) - {error for error, _ in OCCASIONS}
    assert untried == {"ProtocolError", "UnsupportedVersionError"}
