"""A transaction waits for the end of the previous one, where that saves time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioprod import ErrorCode, KafkaError, Producer
from aioprod.producer.transactions.previous_end import PreviousEnd
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TransactionState,
)
from aioprod.testing import EmbeddedCluster, delay, fail
from aioprod.types import TopicPartition

pytestmark = pytest.mark.virtual_time

BROKERS_PAUSE_S = 0.02
ASKS = ApiKey.DESCRIBE_TRANSACTIONS


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest) -> int:
    level: int = request.param
    return level


@pytest.fixture
async def cluster(protocol: int) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(transaction_version=protocol) as running:
        yield running


@pytest.fixture
async def producer(cluster: EmbeddedCluster) -> AsyncIterator[Producer]:
    async with Producer(cluster.bootstrap_servers, transactional_id="x", linger_ms=0) as started:
        yield started


async def transact(producer: Producer, value: bytes) -> float:
    """Commit one record; return the seconds until it was stored."""
    loop = asyncio.get_running_loop()
    async with producer.transaction():
        started = loop.time()
        await producer.send_and_wait("t", value)
        return loop.time() - started


def asked(cluster: EmbeddedCluster) -> int:
    return cluster.request_count(ASKS)


async def come_too_early(
    cluster: EmbeddedCluster, producer: Producer, *, pause_markers: bool = False
) -> None:
    """Let the broker pause before it stores the first records of a transaction."""
    await transact(producer, b"first")
    cluster.on(ApiKey.PRODUCE, delay(BROKERS_PAUSE_S))
    async with producer.transaction():
        await producer.send_and_wait("t", b"paused")
        if pause_markers:
            cluster.pause_markers()


@pytest.mark.parametrize("protocol", [2], indirect=True)
async def test_records_wait_for_the_markers(cluster: EmbeddedCluster, producer: Producer) -> None:
    await come_too_early(cluster, producer, pause_markers=True)
    asyncio.get_running_loop().call_later(0.01, cluster.resume_markers)
    took_s = await transact(producer, b"next")
    assert 0.01 < took_s < BROKERS_PAUSE_S
    assert asked(cluster) > 2
    values = [record.value for record in cluster.records("t", committed_only=True)]
    assert values == [b"first", b"paused", b"next"]


@pytest.mark.parametrize("protocol", [2], indirect=True)
async def test_offsets_wait_for_the_markers(cluster: EmbeddedCluster, producer: Producer) -> None:
    await come_too_early(cluster, producer, pause_markers=True)
    asyncio.get_running_loop().call_later(0.01, cluster.resume_markers)
    async with producer.transaction():
        await producer.send_offsets_to_transaction({TopicPartition("t", 0): 2}, "g")
    assert asked(cluster) > 2
    assert cluster.request_count(ApiKey.TXN_OFFSET_COMMIT) == 1


@pytest.mark.parametrize("protocol", [2], indirect=True)
async def test_it_asks_no_more_once_the_end_is_early_many_times(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    await come_too_early(cluster, producer)
    for number in range(40):
        await transact(producer, b"%d" % number)
    assert asked(cluster) == 16


@pytest.mark.parametrize("protocol", [2], indirect=True)
async def test_it_asks_from_the_first_record_on(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    await come_too_early(cluster, producer)
    async with Producer(
        cluster.bootstrap_servers, transactional_id="lingers", linger_ms=1_000
    ) as lingers:
        await come_too_early(cluster, lingers)
        before = asked(cluster)
        await lingers.begin_transaction()
        await lingers.send("t", b"lingers")
        await asyncio.sleep(0.01)
        assert asked(cluster) == before + 1
        await lingers.commit_transaction()


async def test_a_producer_in_time_never_asks(cluster: EmbeddedCluster, producer: Producer) -> None:
    for number in range(3):
        await transact(producer, b"%d" % number)
    assert asked(cluster) == 0


async def test_a_far_coordinator_is_not_asked(cluster: EmbeddedCluster, producer: Producer) -> None:
    cluster.on(ApiKey.PRODUCE, delay(0.25), times=None)
    cluster.on(ApiKey.END_TXN, delay(0.25), times=None)
    for number in range(3):
        await transact(producer, b"%d" % number)
    assert asked(cluster) == 0


@pytest.mark.parametrize("protocol", [2], indirect=True)
async def test_it_waits_for_a_tenth_of_a_second_at_most(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    await come_too_early(cluster, producer, pause_markers=True)
    async with producer.transaction():
        sent = cluster.request_count(ApiKey.PRODUCE)
        await producer.send("t", b"next")
        await asyncio.sleep(0.09)
        assert cluster.request_count(ApiKey.PRODUCE) == sent
        await asyncio.sleep(0.02)
        assert cluster.request_count(ApiKey.PRODUCE) == sent + 1
        cluster.resume_markers()


@pytest.mark.parametrize("protocol", [2], indirect=True)
@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.NOT_COORDINATOR]
)
async def test_a_coordinator_that_refuses_delays_nothing(
    cluster: EmbeddedCluster, producer: Producer, code: ErrorCode
) -> None:
    await come_too_early(cluster, producer)
    cluster.on(ASKS, fail(code))
    for number in range(3):
        assert await transact(producer, b"%d" % number) < BROKERS_PAUSE_S
    assert asked(cluster) == 1


@pytest.mark.parametrize("protocol", [2], indirect=True)
async def test_an_abort_does_not_wait(cluster: EmbeddedCluster, producer: Producer) -> None:
    await come_too_early(cluster, producer, pause_markers=True)
    await producer.begin_transaction()
    await producer.send("t", b"dropped")
    await asyncio.sleep(0.01)
    started = asyncio.get_running_loop().time()
    await producer.abort_transaction()
    assert asyncio.get_running_loop().time() - started < 0.01
    cluster.resume_markers()
    await transact(producer, b"next")
    values = [record.value for record in cluster.records("t", committed_only=True)]
    assert values == [b"first", b"paused", b"next"]


class MarkersOfKnownLength:
    """A coordinator that answers at once, and whose markers take a known time."""

    trouble: KafkaError | None = None

    def __init__(self) -> None:
        self.asked = 0
        self.done_at = 0.0

    async def request(self, *_: object) -> Any:
        self.asked += 1
        ended = asyncio.get_running_loop().time() >= self.done_at
        state = TransactionState(transaction_state="CompleteCommit" if ended else "PrepareCommit")
        return DescribeTransactionsResponse(transaction_states=[state])

    def forget(self, *_: object) -> None:
        raise AssertionError("the coordinator is known")

    async def waited(self, end: PreviousEnd, markers_s: float) -> float:
        """Return how long the records of the next transaction wait after the last one's end."""
        loop = asyncio.get_running_loop()
        ended_at = loop.time()
        self.done_at = ended_at + markers_s
        end.ended(ended_at, ended_at)
        if end.awaited:
            await end.wait()
        waited_s = loop.time() - ended_at
        end.first_sent(loop.time())
        if waited_s < markers_s:
            await asyncio.sleep(BROKERS_PAUSE_S)
        end.stored(loop.time())
        return waited_s


@pytest.fixture
def markers() -> MarkersOfKnownLength:
    return MarkersOfKnownLength()


async def test_quick_markers_cost_no_pause(markers: MarkersOfKnownLength) -> None:
    end = PreviousEnd("x", markers)
    await markers.waited(end, 1e-9)
    await asyncio.sleep(1)
    assert await markers.waited(end, 1e-9) < 0.001


async def test_it_goes_on_asking_while_some_markers_are_late(markers: MarkersOfKnownLength) -> None:
    end = PreviousEnd("x", markers)
    for number in range(200):
        markers_s = 0.0 if number % 10 else 0.001
        assert await markers.waited(end, markers_s) >= markers_s or number == 0


async def test_it_learns_how_long_the_markers_take(markers: MarkersOfKnownLength) -> None:
    end = PreviousEnd("x", markers)
    for _ in range(100):
        await markers.waited(end, 0.006)
    before, times = markers.asked, 100
    waits = [await markers.waited(end, 0.006) for _ in range(times)]
    assert min(waits) >= 0.006
    assert sum(waits) / times < 0.0065
    assert markers.asked - before < 3 * times  # five each without what it has learned
