"""The accumulator decides over (state, now) which batches are ready, and returns them in order. No
broker is needed.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any

import pytest

from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo, TopicInfo
from aioprod.config.producer import ProducerConfig
from aioprod.errors import KafkaError, ProducerClosedError
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.appends import PendingAppend, PendingBatch, PendingRecord
from aioprod.producer.batch import BatchState, ProducerBatch, ProducerIdAndEpoch
from aioprod.producer.partition_queue import PartitionQueue
from aioprod.producer.wakeup import NEVER
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.protocol.record_encoder import NO_HEADERS
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import ProducerRecord
from tests.producer.collaborators import drain, make_accumulator, make_appender, ready

LINGER_S = 0.5
RECORD_BOUND = 140  # of the records of 100 bytes that add() appends


def cluster(leaders: list[int], topic: str = "t") -> ClusterSnapshot:
    """A topic whose partition n is led by ``leaders[n]``."""
    return ClusterSnapshot(
        1,
        {},
        {
            topic: TopicInfo(
                topic, partitions=tuple(PartitionInfo(n, node, 0) for n, node in enumerate(leaders))
            )
        },
    )


def made(leaders: list[int], **settings: Any) -> RecordAccumulator:
    """An accumulator whose batches take one record of 100 bytes, or two by ``batch_size=400``."""
    settings = {
        "enable_idempotence": False,
        "batch_size": 200,
        "linger_ms": LINGER_S * 1000,
        **settings,
    }
    config = ProducerConfig(**settings)
    accumulator = make_accumulator(config)
    accumulator.update(cluster(leaders))
    return accumulator


async def add(accumulator: RecordAccumulator, partition: int = 0, size: int = 100) -> ProducerBatch:
    record = ProducerRecord("t", b"x" * size)
    pending = PendingRecord(
        record, 0, None, b"x" * size, NO_HEADERS, size + RECORD_BOUND - 100, now() + 60
    )
    return await placed(accumulator, pending, partition)


async def placed(
    accumulator: RecordAccumulator, pending: PendingAppend, partition: int = 0
) -> ProducerBatch:
    appender = make_appender(accumulator)
    try:
        appender.enter(pending, queue_of(accumulator, partition))
        batch, _ = pending.place or await appender.in_turn(pending)
    finally:
        appender.withdraw(pending)
    return batch


def queue_of(accumulator: RecordAccumulator, partition: int) -> PartitionQueue:
    return accumulator.topics["t"].queues[partition]


def now() -> float:
    return asyncio.get_running_loop().time()


def drained(accumulator: RecordAccumulator, node_id: int = 1, at: float | None = None) -> list[int]:
    """Take one request's batches and name their partitions."""
    return [
        batch.tp.partition for batch in drain(accumulator, node_id, now() if at is None else at)
    ]


# -- ready -----------------------------------------------------------------------------------------


async def test_a_batch_with_room_waits_for_linger_and_says_until_when() -> None:
    accumulator = made([1], batch_size=400)
    batch = await add(accumulator)
    found = ready(accumulator, now())
    assert (found.nodes, found.leaderless) == ([], False)
    # A millisecond sooner than it has to be: timers ring up to so much late.
    assert batch.created_at + LINGER_S - 0.0011 < found.look_again_at < batch.created_at + LINGER_S
    assert drained(accumulator) == []
    assert ready(accumulator, batch.created_at + LINGER_S).nodes == [1]
    assert drained(accumulator, at=batch.created_at + LINGER_S) == [0]


async def test_nothing_to_send_is_never_ready() -> None:
    accumulator = made([1, 2])
    assert ready(accumulator, now()).nodes == []
    assert ready(accumulator, now()).look_again_at == NEVER


async def test_a_full_batch_does_not_linger() -> None:
    accumulator = made([1])
    for _ in range(2):
        await add(accumulator)
    assert ready(accumulator, now()).nodes == [1]
    assert drained(accumulator) == [0]
    assert drained(accumulator) == [], "the second one still has room"


async def test_encoded_records_come_behind_the_open_batch_and_do_not_linger() -> None:
    accumulator = made([1], batch_size=400)
    queue = queue_of(accumulator, 0)
    opened = await add(accumulator)
    writer = RecordBatchWriter.of_encoded(b"x" * 1_000, 10, 0, 0, None)
    encoded = await placed(accumulator, PendingBatch(writer, now() + 60))
    later = await add(accumulator)
    assert list(queue.batches) == [opened, encoded, later]
    assert (opened.closed, encoded.closed, later.closed) == (True, True, False)
    assert encoded.leased == 1_000 + HEADER_SIZE
    assert accumulator.pool.available == accumulator.pool.total - 2 * 400 - 1_000 - HEADER_SIZE
    assert [drain(accumulator, 1, now()) for _ in range(3)] == [[opened], [encoded], []]


async def test_encoded_records_alone_are_ready_at_once() -> None:
    accumulator = made([1])
    await placed(
        accumulator, PendingBatch(RecordBatchWriter.of_encoded(b"x", 1, 0, 0, None), now() + 60)
    )
    assert ready(accumulator, now()).nodes == [1]


async def test_nothing_lingers_while_a_call_waits_for_memory() -> None:
    accumulator = made([1], batch_size=400, buffer_memory=600)
    await add(accumulator)
    assert ready(accumulator, now()).nodes == []
    waiting = asyncio.ensure_future(accumulator.pool.allocate(400, 10))
    await asyncio.sleep(0)
    assert ready(accumulator, now()).nodes == [1]
    waiting.cancel()
    await asyncio.wait([waiting])
    assert ready(accumulator, now()).nodes == []


async def test_nothing_lingers_during_a_flush_and_afterwards_it_does() -> None:
    accumulator = made([1], batch_size=400)
    batch = await add(accumulator)
    flushing = asyncio.ensure_future(accumulator.flush())
    await asyncio.sleep(0)
    later = await add(accumulator)
    assert later is batch and ready(accumulator, now()).nodes == [1]
    assert drained(accumulator) == [0]
    accumulator.stored(batch, now())
    batch.succeed(0, -1)
    await flushing
    await add(accumulator)
    assert ready(accumulator, now()).nodes == []


async def test_a_flush_waits_for_what_is_there_and_not_for_what_comes_later() -> None:
    accumulator = made([1])
    first = await add(accumulator)
    flushing = asyncio.ensure_future(accumulator.flush())
    await asyncio.sleep(0)
    second = await add(accumulator)
    assert second is not first
    accumulator.stored(first, now())
    first.succeed(0, -1)
    async with asyncio.timeout(1):
        await flushing
    assert accumulator.incomplete.keys() == {second}


async def test_a_partition_without_a_leader_is_named_and_no_node_is_ready() -> None:
    accumulator = made([-1])
    for _ in range(2):
        await add(accumulator)
    found = ready(accumulator, now())
    assert (found.nodes, found.leaderless) == ([], True)
    accumulator.update(cluster([7]))
    assert (ready(accumulator, now()).nodes, ready(accumulator, now()).leaderless) == ([7], False)


async def test_a_partition_without_a_leader_asks_for_none_before_its_batch_is_due() -> None:
    accumulator = made([-1], batch_size=400)
    await add(accumulator)
    assert not ready(accumulator, now()).leaderless


async def test_a_muted_partition_is_passed_and_the_others_are_not() -> None:
    accumulator = made([1, 1, 2], linger_ms=0)
    for partition in range(3):
        await add(accumulator, partition)
    queue_of(accumulator, 0).muted = queue_of(accumulator, 2).muted = True
    assert ready(accumulator, now()).nodes == [1]
    assert drained(accumulator) == [1]
    queue_of(accumulator, 0).muted = False
    assert drained(accumulator) == [0]


async def test_a_batch_that_is_dropped_unsent_leaves_its_partition_muted() -> None:
    """The request in flight is another batch's: nothing may be sent before its reply."""
    accumulator = made([1], linger_ms=0, max_in_flight_requests_per_connection=1)
    sent = await add(accumulator)
    assert drained(accumulator) == [0]
    unsent = await add(accumulator)
    accumulator.drop_unsent(KafkaError("the transaction is aborted"))
    assert unsent.state is BatchState.ABORTED
    later = await add(accumulator)
    assert queue_of(accumulator, 0).muted
    assert drained(accumulator) == []
    accumulator.attempt_ended(sent)
    accumulator.stored(sent, now())
    assert drain(accumulator, 1, now()) == [later]


async def test_a_retry_waits_for_its_back_off_and_not_for_linger() -> None:
    accumulator = made([1], batch_size=400, linger_ms=60_000)
    batch = await add(accumulator)
    assert drain(accumulator, 1, batch.created_at + 60) == [batch]
    at = batch.created_at + 5
    accumulator.put_back(batch, at)
    assert ready(accumulator, at - 0.001).nodes == []
    assert ready(accumulator, at - 0.001).look_again_at == at
    assert drained(accumulator, at=at - 0.001) == []
    assert ready(accumulator, at).nodes == [1]
    assert drained(accumulator, at=at) == [0]


async def test_a_new_leader_ends_the_back_off() -> None:
    accumulator = made([1], linger_ms=0)
    batch = await add(accumulator)
    drain(accumulator, 1, now())
    accumulator.put_back(batch, now() + 60)
    accumulator.update(cluster([2]))
    assert ready(accumulator, now()).nodes == [2]


async def test_a_closed_accumulator_takes_no_late_arrivals() -> None:
    """One that waited for memory when the producer closed, and one that comes afterwards."""
    accumulator = made([1], buffer_memory=300)
    batch = await add(accumulator)
    late = asyncio.ensure_future(add(accumulator))
    await asyncio.sleep(0)
    accumulator.abort(ProducerClosedError("closed"))
    for arrival in (late, add(accumulator)):
        with pytest.raises(ProducerClosedError):
            await arrival
    assert isinstance(batch.failure(), ProducerClosedError)
    assert accumulator.pool.available == 300 and not accumulator.incomplete


async def test_memory_that_comes_in_the_moment_of_closing_is_given_back() -> None:
    accumulator = made([1], buffer_memory=300)
    batch = await add(accumulator)
    late = asyncio.ensure_future(add(accumulator))
    await asyncio.sleep(0)
    accumulator.stored(batch, now())
    batch.succeed(0, -1)
    accumulator.abort(ProducerClosedError("closed"))
    with pytest.raises(ProducerClosedError):
        await late
    assert accumulator.pool.available == 300 and not accumulator.incomplete


# -- drain -----------------------------------------------------------------------------------------


async def test_one_batch_of_each_partition_and_of_the_nodes_own_only() -> None:
    accumulator = made([1, 2, 1], linger_ms=0)
    for _ in range(2):
        for partition in range(3):
            await add(accumulator, partition)
    assert drained(accumulator, 1) == [0, 2]
    assert drained(accumulator, 2) == [1]
    assert drained(accumulator, 1) == [0, 2]
    assert drained(accumulator, 1) == []


async def test_a_request_stays_below_its_limit() -> None:
    accumulator = made([1] * 5, linger_ms=0, max_request_size=400)
    for partition in range(5):
        await add(accumulator, partition)
    taken = drain(accumulator, 1, now())
    assert len(taken) == 2
    assert sum(len(batch.writer.build()) for batch in taken) <= 400


async def test_a_batch_larger_than_the_limit_goes_alone() -> None:
    accumulator = made([1, 1], linger_ms=0, batch_size=100, max_request_size=200)
    await add(accumulator, 0, size=150)
    await add(accumulator, 1)
    first = drain(accumulator, 1, now())
    assert len(first) == 1 and len(first[0].writer.build()) > 200
    assert drained(accumulator) == [1]


async def test_a_partition_whose_sequence_has_to_wait_is_passed() -> None:
    accumulator = made([1, 1], linger_ms=0, enable_idempotence=True)
    accumulator._producer.identity = ProducerIdAndEpoch((7, 0))
    await add(accumulator, 0)
    assert drained(accumulator) == [0]
    for partition in (0, 1):
        await add(accumulator, partition)
    assert drained(accumulator) == [1], (
        "partition 0's first batch is unresolved, so its second waits"
    )
    assert drained(accumulator) == []


@pytest.mark.parametrize("seed", range(20))
async def test_small_requests_let_no_partition_starve(seed: int) -> None:
    """Each request has room for one batch. Batches come at random, and a partition that waits is
    passed at most once by each of the others.
    """
    rng = random.Random(seed)
    count = rng.randrange(2, 8)
    accumulator = made([1] * count, linger_ms=0, batch_size=150, max_request_size=200)
    passed = [0] * count
    for _ in range(300):
        for queue in accumulator.topics["t"].queues:
            if not queue.batches and rng.random() < 0.7:
                await add(accumulator, queue.tp.partition)
        if rng.random() < 0.5:
            ready(accumulator, now())
        waiting = [queue.tp.partition for queue in accumulator.topics["t"].queues if queue.batches]
        taken = drain(accumulator, 1, now())
        assert len(taken) == min(1, len(waiting))
        for batch in taken:
            accumulator.stored(batch, now())
            passed[batch.tp.partition] = 0
        for partition in set(waiting) - {batch.tp.partition for batch in taken}:
            passed[partition] += 1
        assert max(passed) < count, f"seed {seed}"


@pytest.mark.parametrize("seed", range(10))
async def test_retries_go_back_to_their_places_in_whatever_order_they_come(seed: int) -> None:
    rng = random.Random(seed)
    accumulator = made([1], linger_ms=0)
    batches = [await add(accumulator) for _ in range(12)]
    away: list[ProducerBatch] = []
    for _ in range(200):
        if away and rng.random() < 0.5:
            batch = away.pop(rng.randrange(len(away)))
            accumulator.put_back(batch, 0.0)
        else:
            away += drain(accumulator, 1, now())
        waiting = list(queue_of(accumulator, 0).batches)
        assert waiting == [batch for batch in batches if batch in waiting], f"seed {seed}"


# -- expiry, topics and memory ---------------------------------------------------------------------


async def test_batches_expire_by_age_in_flight_or_not() -> None:
    accumulator = made([1], linger_ms=0, delivery_timeout_ms=60_000)
    first, second = await add(accumulator), await add(accumulator)
    second.created_at = first.created_at + 1
    drain(accumulator, 1, now())
    assert accumulator.next_expiry() == first.created_at + 60
    assert accumulator.expired(first.created_at + 59.9) == []
    assert accumulator.expired(first.created_at + 60) == [first]
    assert accumulator.expired(first.created_at + 61) == [first, second]


async def test_parts_of_a_split_batch_expire_when_it_would_have() -> None:
    accumulator = made([1], linger_ms=0, batch_size=400, delivery_timeout_ms=60_000)
    for _ in range(2):
        old = await add(accumulator)
    (taken,) = drain(accumulator, 1, now())
    new = await add(accumulator)
    assert taken is old is not new
    new.created_at = old.created_at + 1
    accumulator.split(old)
    parts = [part for _, part in old.parts]
    assert accumulator.next_expiry() == old.created_at + 60
    assert accumulator.expired(old.created_at + 60) == parts


async def test_a_topic_made_again_with_fewer_partitions_has_fewer() -> None:
    accumulator = made([1] * 4)
    topic = accumulator.topics["t"]
    lost = await add(accumulator, 3)
    again = TopicInfo(
        "t", topic_id=uuid.UUID(int=2), partitions=(PartitionInfo(0, 1, 0), PartitionInfo(1, 2, 0))
    )
    accumulator.update(ClusterSnapshot(2, {}, {"t": again}))
    assert topic.count == 2 and topic.available == [0, 1] and topic.sticky.current in (0, 1)
    found = ready(accumulator, lost.created_at + LINGER_S)
    assert found.nodes == [] and found.leaderless, (
        "what waits for a partition that is no more has no leader, and expires"
    )


async def test_a_broker_that_lags_behind_takes_no_partition_away() -> None:
    accumulator = made([1] * 4)
    accumulator.update(cluster([1] * 2))
    assert accumulator.topics["t"].count == 4


async def test_idle_partitions_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work grows with the partitions that have batches, not with those that there are."""
    looked_at: list[PartitionQueue] = []
    due_at = PartitionQueue.due_at

    def counted(self: PartitionQueue, linger_s: float) -> float:
        looked_at.append(self)
        return due_at(self, linger_s)

    monkeypatch.setattr(PartitionQueue, "due_at", counted)
    accumulator = made([1] * 5_000, linger_ms=0)
    for partition in (17, 4_000):
        await add(accumulator, partition)
    assert ready(accumulator, now()).nodes == [1]
    assert drained(accumulator) == [17, 4_000]
    assert {queue.tp.partition for queue in looked_at} == {17, 4_000}
    assert ready(accumulator, now()).nodes == [] and len(looked_at) < 20
