"""Processors of share groups against the embedded broker, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import chain
from typing import Any

import pytest

from aioprod import (
    Admin,
    BrokerError,
    ConfigError,
    ErrorCode,
    JsonDeserializer,
    KafkaError,
    Producer,
    ProducerRecord,
    TopicPartition,
)
from aioprod.admin import ConfigResource
from aioprod.processing import (
    Acknowledged,
    DeadLettered,
    HandlerFailed,
    ProcessingError,
    ProcessorObserver,
    ProcessorStatus,
    Record,
    RetryPolicy,
    RetryTopic,
    ShareBatchProcessor,
    ShareProcessor,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail
from tests.consumer.share.share_groups import ShareTopic, lag
from tests.waiting import until

pytestmark = pytest.mark.virtual_time

Raw = Record[bytes | None, bytes | None]


@pytest.fixture
async def topic(broker: EmbeddedCluster) -> ShareTopic:
    made = ShareTopic(broker.bootstrap_servers)
    await made.create()
    broker.create_topic("out", 1)
    broker.create_topic("dead", 1)
    return made


def processor(
    topic: ShareTopic, handle: Callable[[Raw], Any], **changes: Any
) -> ShareProcessor[Any, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": topic.kafka,
        "group_id": topic.group,
        "dead_letter_topic": "dead",
        "retry": RetryPolicy(attempts=2, backoff_ms=100),
        **changes,
    }
    return ShareProcessor(handle, topic.topic, **settings)


async def until_done(topic: ShareTopic) -> None:
    """Wait until each record is accepted or rejected."""
    async with asyncio.timeout(3_600):
        while await lag(topic) != 0:  # noqa: ASYNC110 - a state of the broker
            await asyncio.sleep(1)


class Handled:
    """A handler that notes its calls.

    Args:
        fails: the calls that fail.
        seconds: how long a call takes.
    """

    def __init__(
        self, fails: Callable[[Raw], bool] = lambda record: False, seconds: float = 0.01
    ) -> None:
        self.calls: list[Raw] = []
        self.ended: list[int] = []
        self.running: Counter[int] = Counter()
        self._fails = fails
        self._seconds = seconds

    @property
    def values(self) -> list[int]:
        return [int(record.value or b"") for record in self.calls]

    async def __call__(self, record: Raw) -> None:
        self.calls.append(record)
        self.running[record.offset] += 1
        assert self.running[record.offset] == 1
        try:
            await asyncio.sleep(self._seconds)
            if self._fails(record):
                raise ValueError("no")
            self.ended.append(record.offset)
        finally:
            self.running[record.offset] -= 1


async def test_each_record_is_handled_and_accepted(
    broker: EmbeddedCluster, topic: ShareTopic
) -> None:
    async def handle(record: Raw) -> ProducerRecord:
        return ProducerRecord("out", (record.value or b"") * 2)

    await topic.write(range(100))
    async with processor(topic, handle) as it:
        await until_done(topic)
        assert it.metrics()["records-handled-total"] == 100
        assert it.metrics()["records-accepted-total"] == 100
        assert it.metrics()["records-pending"] == 0
        assert it.ready and it.healthy
    assert sorted(each.value or b"" for each in broker.records("out")) == sorted(
        b"%d%d" % (number, number) for number in range(100)
    )
    async with Admin(topic.kafka) as admin:
        assert (await admin.describe_share_groups(topic.group)).members == ()


async def test_more_members_than_partitions_share_the_records(topic: ShareTopic) -> None:
    await topic.write(range(60))
    members = [Handled(seconds=1.0) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for member in members:
            await stack.enter_async_context(processor(topic, member, concurrency=2))
        await until_done(topic)
    assert sorted(chain(*(member.values for member in members))) == list(range(60))
    assert min(len(member.calls) for member in members) >= 10


# -- failures --------------------------------------------------------------------------------------


async def test_another_member_gets_what_one_can_not_handle(topic: ShareTopic) -> None:
    await topic.write([0])
    broken, works = Handled(lambda record: True), Handled()
    async with processor(topic, broken):
        await until(lambda: broken.calls)
        async with processor(topic, works):
            await until_done(topic)
    # Released at once, it may come back to the same member: that tries it again, as dead letter.
    assert [(each.attempt, each.delivery_count) for each in broken.calls[:2]] == [(1, 1), (2, 1)]
    assert len(broken.calls) + len(works.calls) in (3, 4)


@pytest.mark.parametrize("deliveries", [1, 2, 5])
async def test_a_record_that_fails_each_time_is_a_dead_letter(
    broker: EmbeddedCluster, topic: ShareTopic, deliveries: int
) -> None:
    reported: list[tuple[str, int]] = []

    class Observer(ProcessorObserver):
        def on_handler_failed(self, event: HandlerFailed) -> None:
            reported.append((event.next_step, event.attempt))

        def on_dead_letter(self, event: DeadLettered) -> None:
            reported.append((event.dead_letter_topic, event.attempts))

    handle = Handled(lambda record: record.value == b"1")
    await topic.write([0, 1, 2])
    async with processor(topic, handle, max_deliveries=deliveries, observers=[Observer()]) as it:
        await until_done(topic)
        metrics = it.metrics()
    calls = [(each.attempt, each.delivery_count) for each in handle.calls if each.value == b"1"]
    assert calls == [(attempt, of) for of in range(1, deliveries + 1) for attempt in (1, 2)]
    (letter,) = broker.records("dead")
    headers = dict(letter.headers)
    assert headers["aioprod.attempts"] == b"2"
    assert headers["aioprod.delivery-count"] == b"%d" % deliveries
    assert headers["aioprod.original-topic"] == topic.topic.encode()
    assert headers["aioprod.original-offset"] == b"1"
    assert headers["aioprod.error-class"] == b"builtins.ValueError"
    assert reported == [("retry", 1), ("release", 2)] * (deliveries - 1) + [
        ("retry", 1),
        ("dead letter", 2),
        ("dead", 2),
    ]
    assert metrics["records-dead-lettered-total"] == 1
    assert metrics["records-released-total"] == deliveries - 1
    assert metrics["records-accepted-total"] == 3


async def test_a_record_that_can_not_be_read_is_a_dead_letter_at_once(
    broker: EmbeddedCluster, topic: ShareTopic
) -> None:
    seen: list[Any] = []

    async def handle(record: Record[Any, Any]) -> None:
        seen.append(record.value)

    await topic.write([7])
    async with Producer(topic.kafka) as producer:
        await producer.send_and_wait(topic.topic, b"{")
    it: ShareProcessor[Any, Any] = ShareProcessor(
        handle,
        topic.topic,
        bootstrap_servers=topic.kafka,
        group_id=topic.group,
        dead_letter_topic="dead",
        value_deserializer=JsonDeserializer(),
    )
    async with it:
        await until_done(topic)
    assert seen == [7]
    (letter,) = broker.records("dead")
    assert letter.value == b"{"
    assert dict(letter.headers)["aioprod.attempts"] == b"0"


async def test_without_a_topic_for_them_failed_records_are_rejected(topic: ShareTopic) -> None:
    handle = Handled(lambda record: record.value == b"1")
    await topic.write([0, 1, 2])
    async with processor(topic, handle, dead_letter_topic=None, reject_failed=True) as it:
        await until_done(topic)
        assert it.metrics()["records-rejected-total"] == 1
        assert it.metrics()["records-accepted-total"] == 2
    assert sorted(handle.values) == [0, 1, 1, 1, 1, 2]


async def test_a_record_is_not_accepted_without_its_dead_letter(
    broker: EmbeddedCluster, topic: ShareTopic
) -> None:
    await topic.write([0])
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    it = processor(topic, Handled(lambda record: True), max_deliveries=1)
    with pytest.raises(ProcessingError, match="can't be sent to 'dead'"):
        async with it, asyncio.timeout(600):
            await until(lambda: it.state.status is ProcessorStatus.STOPPED)
    works = Handled()
    async with processor(topic, works):
        await until_done(topic)
    assert [(each.value, each.delivery_count) for each in works.calls] == [(b"0", 2)]


async def test_outputs_come_before_the_acceptance(
    broker: EmbeddedCluster, topic: ShareTopic
) -> None:
    async def handle(record: Raw) -> ProducerRecord:
        return ProducerRecord("out", record.value)

    await topic.write([0])
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    async with processor(topic, handle) as it:
        await until_done(topic)
        assert it.metrics()["handler-errors-total"] == 1
    assert [each.value for each in broker.records("out")] == [b"0"]


# -- locks -----------------------------------------------------------------------------------------


async def test_a_handler_may_take_longer_than_the_lock(topic: ShareTopic) -> None:
    await topic.write([0, 1])
    slow, other = Handled(seconds=100.0), Handled()
    async with processor(topic, slow, concurrency=1):
        await until(lambda: slow.calls)
        async with processor(topic, other):
            await until_done(topic)
    assert sorted(slow.values + other.values) == [0, 1]
    assert {each.delivery_count for each in slow.calls + other.calls} == {1}


async def test_no_more_is_locked_than_can_soon_be_handled(
    broker: EmbeddedCluster, topic: ShareTopic
) -> None:
    await topic.write(range(50))
    slow, quick = Handled(seconds=1_000.0), Handled()
    polls = {"max_poll_interval_ms": 20_000}
    async with processor(topic, slow, concurrency=2, drain_timeout_ms=0, consumer=polls) as it:
        await until(lambda: it.metrics()["records-pending"] == 4)
        async with processor(topic, quick, concurrency=2):
            await until(lambda: len(quick.calls) == 46)
            beats = broker.request_count(ApiKey.SHARE_GROUP_HEARTBEAT)
            await asyncio.sleep(60)
            assert broker.request_count(ApiKey.SHARE_GROUP_HEARTBEAT) > beats
            async with Admin(topic.kafka) as admin:
                assert len((await admin.describe_share_groups(topic.group)).members) == 2
    assert len(quick.calls) == 46


async def test_a_record_that_comes_back_is_not_handled_twice_at_a_time(
    broker: EmbeddedCluster, topic: ShareTopic
) -> None:
    reported: list[Acknowledged] = []

    class Observer(ProcessorObserver):
        def on_acknowledged(self, event: Acknowledged) -> None:
            reported.append(event)

    await topic.write([0, 1])
    slow = Handled(seconds=60.0)  # it checks that
    async with processor(topic, slow, observers=[Observer()]):
        await until(lambda: len(slow.calls) == 2)
        await broker.kill_node(1)
        await broker.start_node(1)
        await until_done(topic)
    assert sorted(slow.values) == [0, 1]
    # What is said counts for the new delivery.
    assert {event.error for event in reported} == {None}


async def test_the_record_of_a_topic_that_was_created_again_is_another_one(
    broker: EmbeddedCluster, topic: ShareTopic
) -> None:
    begun = asyncio.Event()
    ended: list[bytes | None] = []

    async def handle(record: Raw) -> None:
        begun.set()
        await asyncio.sleep(60 if record.value == b"0" else 0.1)
        ended.append(record.value)

    await topic.write([0])
    async with processor(topic, handle):
        await begun.wait()
        broker.delete_topic(topic.topic)
        broker.create_topic(topic.topic, 1)
        await asyncio.sleep(1)
        await topic.write([1])
        await until(lambda: len(ended) == 2)
        await until_done(topic)
    assert ended == [b"1", b"0"]


async def test_acknowledgements_that_are_not_confirmed_are_reported(
    broker: EmbeddedCluster, topic: ShareTopic, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[KafkaError | None] = []

    class Observer(ProcessorObserver):
        def on_acknowledged(self, event: Acknowledged) -> None:
            reported.append(event.error)

    async def handle(record: Raw) -> None:
        if record.delivery_count == 1:
            broker.on(ApiKey.SHARE_FETCH, fail(ErrorCode.SHARE_SESSION_NOT_FOUND))

    await topic.write([0])
    async with processor(topic, handle, observers=[Observer()]) as it:
        await until_done(topic)
        assert it.metrics()["records-handled-total"] == 2
        assert it.metrics()["acknowledgement-errors-total"] == 1
    assert isinstance(reported[0], BrokerError) and reported[1:] == [None]
    assert "-0 at 0: " in caplog.text


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["stop", "cancel"])
async def test_the_end_waits_for_the_records_that_it_has(topic: ShareTopic, way: str) -> None:
    await topic.write(range(10))
    handle = Handled(seconds=2.0)
    it = processor(topic, handle, concurrency=2)
    task = asyncio.create_task(it.run(handle_signals=False))
    await until(lambda: it.metrics()["records-pending"] == 4)
    if way == "stop":
        await it.stop()
        await task
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sorted(handle.ended) == [0, 1, 2, 3]
    assert it.state == (ProcessorStatus.STOPPED, False, False, None)
    assert await lag(topic) == 6


async def test_what_takes_longer_is_released(topic: ShareTopic) -> None:
    await topic.write(range(4))
    slow, quick = Handled(seconds=1_000.0), Handled()
    loop = asyncio.get_running_loop()
    async with processor(topic, slow, concurrency=2, drain_timeout_ms=5_000) as it:
        await until(lambda: it.metrics()["records-pending"] == 4)
        began = loop.time()
    assert 4.9 <= loop.time() - began <= 7
    async with processor(topic, quick):
        await until_done(topic)
    assert sorted(quick.values) == [0, 1, 2, 3]
    assert slow.ended == []


async def test_a_second_cancellation_ends_it_at_once(topic: ShareTopic) -> None:
    await topic.write(range(4))
    slow, quick = Handled(seconds=1_000.0), Handled()
    it = processor(topic, slow)
    task = asyncio.create_task(it.run(handle_signals=False))
    await until(lambda: slow.calls)
    began = asyncio.get_running_loop().time()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() - began < 2
    async with processor(topic, quick):
        await until_done(topic)
    assert sorted(quick.values) == [0, 1, 2, 3]


async def test_a_handler_that_hangs_is_not_healthy(topic: ShareTopic) -> None:
    await topic.write([0])
    slow = Handled(seconds=1_000.0)
    async with processor(topic, slow, unhealthy_after_ms=10_000, drain_timeout_ms=0) as it:
        await until(lambda: slow.calls, 600)
        assert it.healthy
        await until(lambda: not it.healthy, 600)
        assert it.state.status is ProcessorStatus.STALLED
        assert "offset 0" in str(it.state.error)


async def test_the_state_is_that_of_its_consumer(
    broker: EmbeddedCluster, topic: ShareTopic
) -> None:
    broker.on(ApiKey.SHARE_GROUP_HEARTBEAT, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE), times=100)
    it = processor(topic, Handled(), unhealthy_after_ms=20_000)
    async with it:
        await until(lambda: it.state.status is ProcessorStatus.FAILING, 600)
        assert not it.ready and it.healthy
        await until(lambda: it.ready, 600)
        assert it.state.status is ProcessorStatus.RUNNING
        await topic.write([0])
        await until_done(topic)
        broker.on(ApiKey.SHARE_FETCH, fail(ErrorCode.SHARE_SESSION_NOT_FOUND), times=10_000)
        await until(lambda: it.state.status is ProcessorStatus.FAILING, 600)
        assert it.healthy
        await until(lambda: not it.healthy, 600)
        assert isinstance(it.state.error, BrokerError)


# -- batches ---------------------------------------------------------------------------------------


async def test_batches_and_the_one_at_fault(broker: EmbeddedCluster, topic: ShareTopic) -> None:
    calls: list[list[bytes | None]] = []

    async def handle(records: Sequence[Raw]) -> None:
        calls.append([record.value for record in records])
        if b"3" in calls[-1]:
            raise ValueError

    await topic.write(range(8))
    it: ShareBatchProcessor[Any, Any] = ShareBatchProcessor(
        handle,
        topic.topic,
        max_batch_records=5,
        concurrency=1,
        bootstrap_servers=topic.kafka,
        group_id=topic.group,
        dead_letter_topic="dead",
        retry=RetryPolicy(attempts=1),
    )
    async with it:
        await until_done(topic)
    assert calls[0] == [b"0", b"1", b"2", b"3", b"4"]
    assert max(map(len, calls)) == 5
    assert [each.value for each in broker.records("dead")] == [b"3"]
    done: defaultdict[bytes | None, int] = defaultdict(int)
    for call in calls:
        if b"3" not in call:
            for value in call:
                done[value] += 1
    assert done == {b"%d" % number: 1 for number in range(8) if number != 3}


# -- settings --------------------------------------------------------------------------------------


async def test_the_limit_of_the_group_is_checked(topic: ShareTopic) -> None:
    with pytest.raises(ConfigError, match=r"max_deliveries=6: .*share.delivery.count.limit=5"):
        async with processor(topic, Handled(), max_deliveries=6):
            pass
    async with Admin(topic.kafka) as admin:
        await admin.incremental_alter_configs(
            {ConfigResource.group(topic.group): {"share.delivery.count.limit": 6}}
        )
    async with processor(topic, Handled(), max_deliveries=6):
        pass


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"order": "key"}, r"order='key': not supported, as a share group has no order"),
        (
            {"guarantee": "exactly_once"},
            r"guarantee='exactly_once': not supported, as a share group",
        ),
        ({"dead_letter_topic": None}, r"dead_letter_topic=None with reject_failed=False: name"),
        ({"reject_failed": True}, r"dead_letter_topic='dead' with reject_failed=True"),
        ({"max_deliveries": 11}, r"max_deliveries=11: must be .* 1 .* 10"),
        ({"max_pending_records": 1}, r"max_pending_records=1: must be"),
        (
            {"retry": RetryPolicy(keep_order=False, retry_topics=[RetryTopic("r", 1)])},
            r"retry_topics: not supported in a share group",
        ),
        ({"consumer": {"max_lock_renewal_ms": 0}}, r"max_lock_renewal_ms=0: must be at least 1"),
        (
            {"consumer": {"share_acknowledgement_mode": "implicit"}},
            r"consumer: share_acknowledgement_mode='implicit': is set by the processor",
        ),
        ({"max_poll_records": 7}, r"max_poll_records: is a setting of the consumer"),
        ({"max_delivery": 7}, r"unknown setting 'max_delivery': did you mean 'max_deliveries'"),
        ({"dead_letter_topic": "t"}, r"topic 't' is read, and failed records are sent to it"),
    ],
)
def test_bad_settings(settings: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"group_id": "g", "dead_letter_topic": "dead", **settings}
    with pytest.raises(ConfigError, match=text):
        ShareProcessor(Handled(), "t", **given)


def test_a_batch_must_find_room() -> None:
    async def handle(records: Sequence[Raw]) -> None:
        pass

    with pytest.raises(ConfigError, match="max_batch_records=100: must be at most max_pending"):
        ShareBatchProcessor(handle, "t", group_id="g", reject_failed=True, max_pending_records=50)


async def test_the_partitions_of_records_in_handlers(topic: ShareTopic) -> None:
    await topic.write([0])
    slow = Handled(seconds=100.0)
    async with processor(topic, slow, drain_timeout_ms=0) as it:
        await until(lambda: slow.calls)
        tp = TopicPartition(topic.topic, 0)
        assert it.metrics_by_partition() == {tp: {"records-in-flight": 1.0}}
        assert it.in_flight_by_key() == {(tp, None): 1}
