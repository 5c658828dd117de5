"""Transactions while coordinators and brokers fail: all or nothing of each is seen, whatever
happens, and nothing hangs.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from aioprod import (
    BrokerError,
    DeliveryTimeoutError,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerClosedError,
)
from aioprod.errors import AbortableTransactionError, FatalProducerError, TransactionAbortedError
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import (
    Action,
    EmbeddedCluster,
    drop_after,
    drop_before,
    fail,
    hold,
    hold_answer,
)
from aioprod.types import ConsumerGroupMetadata, TopicPartition
from tests.selection import shares_by_default
from tests.waiting import until

FAST = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
    "linger_ms": 0,
}
IMPATIENT = {"request_timeout_ms": 50, "delivery_timeout_ms": 100}
PLACE = TopicPartition("t", 0)
# Of a transaction of the first protocol, in the order in which they are used. The second has no use
# for two of them.
OF_THE_FIRST = [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN]
STEPS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    *OF_THE_FIRST,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.PRODUCE,
    ApiKey.END_TXN,
]


@pytest.fixture(params=[0, 2], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest) -> int:
    """The broker's transaction.version: the first transaction protocol, then the second."""
    level: int = request.param
    return level


@pytest.fixture
async def cluster(protocol: int) -> AsyncIterator[EmbeddedCluster]:
    """Three nodes that speak it."""
    async with EmbeddedCluster(nodes=3, num_partitions=3, transaction_version=protocol) as running:
        yield running


def made(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, transactional_id="x", **{**FAST, **settings})


def seen(cluster: EmbeddedCluster) -> list[bytes | None]:
    """Return the records that readers of committed records get, in order within each partition."""
    return [record.value for record in cluster.records("t", committed_only=True)]


async def send_all(producer: Producer, tag: bytes, count: int = 6) -> None:
    for number in range(count):
        await producer.send("t", tag + b" %d" % number, partition=number % 3)


def whole(*tags: bytes) -> set[bytes | None]:
    return {tag + b" %d" % number for tag in tags for number in range(6)}


# -- coordinators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_the_coordinator_dies_before_the_end(cluster: EmbeddedCluster, end: str) -> None:
    """aiokafka#1134: the dead coordinator was never looked up again."""
    async with made(cluster) as producer:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        await producer.flush()
        dead = cluster.coordinator("transaction", "x")
        await cluster.stop_node(dead)
        async with asyncio.timeout(10):
            await (
                producer.commit_transaction() if end == "commit" else producer.abort_transaction()
            )
            async with producer.transaction():
                await send_all(producer, b"b")
    assert set(seen(cluster)) == (whole(b"a", b"b") if end == "commit" else whole(b"b"))
    assert len(seen(cluster)) == len(set(seen(cluster)))


async def test_the_coordinator_moves_before_the_end(cluster: EmbeddedCluster) -> None:
    async with made(cluster) as producer:
        for target in (1, 2, 3, 1):
            async with producer.transaction():
                await send_all(producer, b"to %d" % target)
                await producer.send_offsets_to_transaction({PLACE: target}, "g")
                cluster.move_coordinator("transaction", "x", target)
                cluster.move_coordinator("group", "g", 4 - target)
    assert len(seen(cluster)) == 24
    assert cluster.committed_offsets("g") == {PLACE: 1}


async def test_the_whole_cluster_is_away_for_a_moment(cluster: EmbeddedCluster) -> None:
    async with made(cluster) as producer:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        await producer.flush()
        await cluster.stop_all()
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.05)
        assert not commit.done()
        for node_id in cluster.node_ids:
            await cluster.start_node(node_id)
        async with asyncio.timeout(10):
            await commit
    assert set(seen(cluster)) == whole(b"a")


@pytest.mark.parametrize(
    "action", [drop_before(), drop_after()], ids=["lost", "done but not answered"]
)
@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("api", STEPS, ids=lambda api: api.name)
async def test_a_connection_that_breaks_at_each_step(
    cluster: EmbeddedCluster, api: ApiKey, end: str, action: Action
) -> None:
    async with made(cluster) as producer, asyncio.timeout(10):
        async with producer.transaction():
            await send_all(producer, b"before")
        cluster.on(api, action, times=2)
        if api in (ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID):
            # Only a new producer needs these.
            async with made(cluster) as successor:
                await one_transaction(successor, end)
                await one_transaction(successor, "commit", b"after")
        else:
            await one_transaction(producer, end)
            cluster.clear_rules()
            await one_transaction(producer, "commit", b"after")
    assert set(seen(cluster)) == whole(b"before", b"after", *([b"a"] if end == "commit" else []))
    assert len(seen(cluster)) == len(set(seen(cluster)))


async def one_transaction(producer: Producer, end: str, tag: bytes = b"a") -> None:
    await producer.begin_transaction()
    await send_all(producer, tag)
    await producer.send_offsets_to_transaction({PLACE: 5}, "g")
    await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())


CODES = [*ErrorCode, *(cast("ErrorCode", number) for number in (134, 999))]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("protocol", "api", "codes"),
    [
        pytest.param(
            level, api, *share.values, id=f"level{level}-{api.name}-{share.id}", marks=share.marks
        )
        for place, (level, api) in enumerate(
            [(0, api) for api in STEPS] + [(2, api) for api in STEPS if api not in OF_THE_FIRST]
        )
        for share in shares_by_default(CODES, 6, place)
    ],
    indirect=["protocol"],
)
async def test_every_code_at_each_step(
    cluster: EmbeddedCluster, api: ApiKey, codes: Sequence[ErrorCode]
) -> None:
    """aiokafka#1004: an unexpected code kills the sender, and everything hangs."""
    cluster.create_topic("t")
    expected: set[bytes | None] = set()
    for code in codes:
        if code == ErrorCode.NONE or (
            api == ApiKey.PRODUCE and code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        ):
            continue  # success; and a lie, for the rule stores nothing
        tag = b"code %d" % code
        producer = made(cluster, request_timeout_ms=1_000, delivery_timeout_ms=2_000)
        of_the_start = api in (ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID)
        async with asyncio.timeout(5):
            if not of_the_start:
                await producer.start()
            rule = cluster.on(api, fail(code), times=1)
            committed = True
            try:
                await producer.start()
                await one_transaction(producer, "commit", tag)
            except FatalProducerError:
                committed = False
            except (AbortableTransactionError, BrokerError):
                # A start that is refused has opened nothing, and is tried again; all else has to be
                # aborted.
                await (producer.start() if of_the_start else producer.abort_transaction())
                await one_transaction(producer, "commit", tag + b" again")
                tag += b" again"
            used = rule.used
            cluster.clear_rules()
            await producer.close()
        assert used == 1, f"{code!r} was not used"
        expected |= whole(tag) if committed else set()
    assert set(seen(cluster)) == expected


# -- records that fail -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_RECORD,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
    ],
)
async def test_every_produce_fails(cluster: EmbeddedCluster, code: ErrorCode) -> None:
    """franz-go once hung until the transaction timed out."""
    async with made(cluster) as producer, asyncio.timeout(5):
        rule = cluster.on(ApiKey.PRODUCE, fail(code), times=None)
        for _ in range(2):
            await producer.begin_transaction()
            deliveries = [await producer.send("t", b"x", partition=number) for number in range(3)]
            with pytest.raises(AbortableTransactionError, match=code.name):
                await producer.commit_transaction()
            with pytest.raises(AbortableTransactionError):
                await producer.send("t", b"y")
            await producer.abort_transaction()
            assert all(delivery.exception() is not None for delivery in deliveries)
        rule.cancel()
        await one_transaction(producer, "commit")
    assert set(seen(cluster)) == whole(b"a")


@pytest.mark.virtual_time
async def test_a_record_that_is_not_delivered_in_time(cluster: EmbeddedCluster) -> None:
    gate = asyncio.Event()
    async with (
        made(cluster, delivery_timeout_ms=200, request_timeout_ms=100) as producer,
        asyncio.timeout(10),
    ):
        async with producer.transaction():
            await send_all(producer, b"before")
        cluster.on(ApiKey.PRODUCE, hold(gate), times=None)
        await producer.begin_transaction()
        delivery = await producer.send("t", b"late", partition=0)
        with pytest.raises(AbortableTransactionError, match="t-0: a record was not written"):
            await producer.commit_transaction()
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        cluster.clear_rules()
        gate.set()
        await producer.abort_transaction()
        await one_transaction(producer, "commit")
    assert set(seen(cluster)) == whole(b"before", b"a")
    assert b"late" not in seen(cluster)


async def test_an_abort_drops_what_was_not_sent(cluster: EmbeddedCluster) -> None:
    async with (
        made(cluster, linger_ms=60_000, delivery_timeout_ms=120_000) as producer,
        asyncio.timeout(5),
    ):
        await producer.begin_transaction()
        delivery = await producer.send("t", b"x")
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError, match="before the record was sent"):
            await delivery
        await producer.begin_transaction()
        await producer.send("t", b"y")
        await producer.commit_transaction()
    assert seen(cluster) == [b"y"]
    assert len(cluster.records("t")) == 1


async def test_the_abort_itself_is_to_be_aborted(cluster: EmbeddedCluster) -> None:
    """KAFKA-19250."""
    async with made(cluster) as producer, asyncio.timeout(5):
        await producer.begin_transaction()
        await send_all(producer, b"a")
        await producer.flush()
        cluster.on(ApiKey.END_TXN, fail(ErrorCode.TRANSACTION_ABORTABLE), times=None)
        for _ in range(2):
            with pytest.raises(FatalProducerError, match="the abort failed, close this producer"):
                await producer.abort_transaction()


async def test_a_replaced_member_of_the_group_commits_nothing(cluster: EmbeddedCluster) -> None:
    """KIP-447: the input is another's now, so the output must not be seen either."""
    cluster.set_group_members("g", 5, {"new": None})
    async with made(cluster) as producer:
        with pytest.raises(AbortableTransactionError, match="TxnOffsetCommit of group 'g'"):
            async with producer.transaction():
                await send_all(producer, b"zombie")
                await producer.send_offsets_to_transaction(
                    {PLACE: 3}, ConsumerGroupMetadata("g", 4, "old")
                )
        async with producer.transaction():
            await send_all(producer, b"a")
            await producer.send_offsets_to_transaction(
                {PLACE: 4}, ConsumerGroupMetadata("g", 5, "new")
            )
    assert set(seen(cluster)) == whole(b"a")
    assert cluster.committed_offsets("g") == {PLACE: 4}


# -- callers, closing, other tasks -----------------------------------------------------------------


async def test_a_block_that_is_cancelled_is_aborted(cluster: EmbeddedCluster) -> None:
    async with made(cluster) as producer:
        inside = asyncio.Event()

        async def work() -> None:
            async with producer.transaction():
                await send_all(producer, b"cancelled")
                await producer.flush()
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
        await one_transaction(producer, "commit")
    assert set(seen(cluster)) == whole(b"a")


async def test_transactions_cancelled_at_every_step(cluster: EmbeddedCluster) -> None:
    """Each transaction is visible as a whole or not at all, and the producer continues."""
    async with made(cluster) as producer, asyncio.timeout(60):
        await one_transaction(producer, "commit", b"warm")
        for steps in range(2_000):

            async def work(steps: int = steps) -> None:
                async with producer.transaction():
                    await send_all(producer, b"step %d" % steps)

            task = asyncio.create_task(work())
            for _ in range(steps):
                await asyncio.sleep(0)
            finished = task.done()
            task.cancel()
            await asyncio.wait([task])
            if finished:
                break
        else:
            pytest.fail("it never ended")
        assert steps > 5
        await one_transaction(producer, "commit", b"end")
    by_step: dict[bytes, int] = {}
    for value in seen(cluster):
        assert value is not None
        tag = value.rpartition(b" ")[0]
        by_step[tag] = by_step.get(tag, 0) + 1
    assert set(by_step.values()) == {6}, by_step


async def test_closing_while_a_commit_is_in_progress_commits_nothing_half(
    cluster: EmbeddedCluster,
) -> None:
    """Batches that fail because the producer closes do not count as finished."""
    gate = asyncio.Event()
    producer = made(cluster)
    await producer.start()
    async with producer.transaction():
        await send_all(producer, b"before")
    await producer.begin_transaction()
    cluster.on(ApiKey.PRODUCE, hold(gate), times=None)
    await send_all(producer, b"lost")
    commit = asyncio.create_task(producer.commit_transaction())
    await asyncio.sleep(0.05)
    await producer.close(timeout_ms=50)
    with pytest.raises(ProducerClosedError):
        await commit
    gate.set()
    ends = sum(request.api_key == ApiKey.END_TXN for request in cluster.requests)
    assert ends == 1
    assert set(seen(cluster)) == whole(b"before")


async def test_closing_waits_for_a_commit_whose_caller_has_left(cluster: EmbeddedCluster) -> None:
    gate = asyncio.Event()
    async with made(cluster) as producer:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        cluster.on(ApiKey.END_TXN, hold_answer(gate))
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.05)
        commit.cancel()
        asyncio.get_running_loop().call_later(0.05, gate.set)
    assert set(seen(cluster)) == whole(b"a")


async def test_a_sender_task_that_is_killed_commits_nothing_half(cluster: EmbeddedCluster) -> None:
    gate = asyncio.Event()
    async with made(cluster) as producer, asyncio.timeout(5):
        await one_transaction(producer, "commit", b"before")
        cluster.on(ApiKey.PRODUCE, hold(gate), times=None)
        await producer.begin_transaction()
        await send_all(producer, b"lost")
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.05)
        [sender] = [task for task in asyncio.all_tasks() if task.get_name() == "aioprod-sender"]
        sender.cancel()
        with pytest.raises(KafkaError, match="cancelled from outside"):
            await commit
        gate.set()
    assert set(seen(cluster)) == whole(b"before")


async def test_a_send_that_waited_for_memory_does_not_slip_into_a_commit(
    cluster: EmbeddedCluster,
) -> None:
    """If it were appended after the commit, it would be part of the next transaction, or of
    none.
    """
    gate = asyncio.Event()
    settings = {"buffer_memory": 1_000, "batch_size": 400, "max_request_size": 1_000}
    async with made(cluster, **settings) as producer, asyncio.timeout(10):
        await one_transaction(producer, "commit", b"before")
        cluster.on(ApiKey.PRODUCE, hold(gate), times=None)
        await producer.begin_transaction()
        for number in range(2):
            await producer.send("t", b"x" * 300, partition=number)
        waiting = [
            asyncio.create_task(producer.send("t", b"y" * 300, partition=2)) for _ in range(3)
        ]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.05)
        gate.set()
        await commit
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        accepted = sum(not isinstance(outcome, BaseException) for outcome in outcomes)
        values = seen(cluster)
        assert values.count(b"x" * 300) == 2
        assert values.count(b"y" * 300) == accepted
        assert len(cluster.records("t")) == len(values), (
            "records outside of any transaction, or in an open one"
        )
        await one_transaction(producer, "commit", b"after")
    assert whole(b"before", b"after") < set(seen(cluster))


async def test_the_first_protocol_keeps_to_its_versions_of_produce() -> None:
    """From version 12 on brokers take a produce request for one of the second protocol."""
    for level, newest in ((0, 11), (2, 13)):
        async with (
            EmbeddedCluster(num_partitions=3, transaction_version=level) as broker,
            made(broker) as producer,
        ):
            await one_transaction(producer, "commit")
            versions = {
                request.api_version
                for request in broker.requests
                if request.api_key == ApiKey.PRODUCE
            }
            assert versions == {newest}


async def test_exactly_once_under_random_faults(cluster: EmbeddedCluster) -> None:
    """Every committed transaction whole, once and in order; nothing of the others."""
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    rng = random.Random(seed)
    names = (
        "NOT_COORDINATOR",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_NOT_AVAILABLE",
    )
    codes = [ErrorCode[name] for name in names]
    committed: list[bytes] = []
    async with made(cluster, batch_size=200) as producer, asyncio.timeout(60):
        for number in range(80):
            trouble(cluster, rng, codes)
            tag = b"transaction %03d" % number
            await producer.begin_transaction()
            try:
                await send_all(producer, tag)
                if rng.random() < 0.5:
                    await producer.send_offsets_to_transaction({PLACE: number}, "g")
                if rng.random() < 0.3:
                    await producer.abort_transaction()
                    continue
                await producer.commit_transaction()
                committed.append(tag)
            except AbortableTransactionError:
                await producer.abort_transaction()
    values = seen(cluster)
    assert len(values) == len(set(values))
    assert set(values) == whole(*committed)
    for partition in range(3):
        found = [record.value for record in cluster.records("t", partition, committed_only=True)]
        assert found == sorted(found, key=lambda value: value or b"")
    assert len(committed) > 20


def trouble(cluster: EmbeddedCluster, rng: random.Random, codes: list[ErrorCode]) -> None:
    """Something bad for the next few requests."""
    for api in STEPS:
        chance = rng.random()
        if chance < 0.2:
            cluster.on(api, rng.choice([drop_before(), drop_after()]), times=rng.randint(1, 3))
        elif chance < 0.35 and api != ApiKey.PRODUCE:
            cluster.on(api, fail(rng.choice(codes)), times=rng.randint(1, 3))
        elif chance < 0.35:
            retriable = [
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.REQUEST_TIMED_OUT,
            ]
            cluster.on(api, fail(rng.choice([*retriable, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])))
    if rng.random() < 0.2:
        cluster.move_coordinator("transaction", "x", rng.randint(1, 3))
    if rng.random() < 0.2 and "t" in cluster.topics:
        cluster.move_leader("t", rng.randint(0, 2), rng.randint(1, 3))


async def test_an_abort_has_batches_of_unknown_fate_finished_first(
    protocol: int, cluster: EmbeddedCluster
) -> None:
    """Under the first protocol a late copy would count for the next transaction: its broker's word
    comes before the end of the transaction.
    """
    async with made(cluster) as producer, asyncio.timeout(20):
        await one_transaction(producer, "commit")
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"known", partition=0)
        cut = asyncio.Event()
        lost = cluster.on(ApiKey.PRODUCE, hold(cut), drop_before())
        unknown = await producer.send("t", b"unknown", partition=0)
        await until(lambda: lost.used)
        asked = len(cluster.requests)
        aborting = asyncio.create_task(producer.abort_transaction())
        await until(lambda: producer._accumulator.aborting is not None)
        cut.set()
        await aborting
        later = [
            request.api_key
            for request in list(cluster.requests)[asked:]
            if request.api_key in (ApiKey.PRODUCE, ApiKey.END_TXN)
        ]
        assert later == ([ApiKey.PRODUCE, ApiKey.END_TXN] if protocol == 0 else [ApiKey.END_TXN])
        assert unknown.done()
        await one_transaction(producer, "commit")
    assert not {b"known", b"unknown"} & set(seen(cluster))


@pytest.mark.virtual_time
async def test_an_abort_while_the_last_markers_are_still_written() -> None:
    """Found by the simulation. For an unknown transaction, a coordinator says PRODUCER_FENCED while
    it still ends the previous one.

    A partition that can't be reached is enough for that: its marker waits, records are refused as
    concurrent until they expire, and the abort that follows is the first request of the new epoch.
    No other producer has taken over.
    """
    async with (
        EmbeddedCluster(transaction_version=2, num_partitions=3) as cluster,
        made(cluster, **IMPATIENT) as producer,
    ):
        async with producer.transaction():
            await send_all(producer, b"a")
            await producer.flush()
            cluster.pause_markers()
        await producer.begin_transaction()
        await producer.send("t", b"late", partition=0)
        with pytest.raises(AbortableTransactionError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        cluster.resume_markers()
        async with producer.transaction():
            await send_all(producer, b"b")
        assert set(seen(cluster)) == whole(b"a", b"b")


@pytest.mark.virtual_time
async def test_an_abort_of_a_transaction_of_which_nothing_arrived_finds_out_who_took_over() -> None:
    async with (
        EmbeddedCluster(transaction_version=2, num_partitions=3) as cluster,
        made(cluster, **IMPATIENT) as producer,
    ):
        await producer.begin_transaction()
        dropped = cluster.on(ApiKey.PRODUCE, drop_before(), times=None)
        await producer.send("t", b"lost", partition=0)
        with pytest.raises(AbortableTransactionError):
            await producer.commit_transaction()
        dropped.cancel()
        async with made(cluster) as successor:
            await successor.init_transactions()
            await producer.abort_transaction()
            with pytest.raises(FatalProducerError):
                await producer.begin_transaction()
            async with successor.transaction():
                await send_all(successor, b"b")
        assert set(seen(cluster)) == whole(b"b")
