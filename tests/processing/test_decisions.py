"""The decisions of processors: positions without holes, order, retries, headers of failures."""

from __future__ import annotations

import random
from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import (
    ConfigError,
    ConsumerRecord,
    DeserializationError,
    ProducerRecord,
    TopicPartition,
)
from aioprod.dead_letter_headers import PROCESSOR as PREFIX
from aioprod.processing import RetryPolicy, RetryTopic
from aioprod.processing.failure_headers import forwarded, origin_of
from aioprod.processing.partitions import CompletedOffsets, PartitionProgress
from aioprod.processing.records import outputs_of
from aioprod.processing.retries import (
    Decision,
    Forward,
    GiveUp,
    RetryInPlace,
    decide,
    retry_delay_s,
)
from aioprod.processing.scheduling import Item, Order, OrderedScheduler

TP = TopicPartition("orders", 0)


def record(offset: int, key: bytes | None = None, topic: str = "orders") -> ConsumerRecord:
    return ConsumerRecord(topic, 0, offset, 1_000 + offset, 0, key, b"value", (("h", b"1"),))


# -- positions -------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=30),  # gaps between the offsets
    st.randoms(use_true_random=False),
)
def test_a_position_has_no_hole_and_outputs_keep_the_order(
    gaps: list[int], rng: random.Random
) -> None:
    tracker, offsets, reading = CompletedOffsets(), [], 0
    for gap in gaps:
        reading += gap
        offsets.append(reading)
    left, done, committed_outputs = list(offsets), set(), 0
    rest = list(offsets)
    while rest or left:
        if rest and (rng.random() < 0.5 or len(rest) == len(left)):
            tracker.add(rest.pop(0))
            continue
        read = [offset for offset in left if offset not in rest]
        offset = rng.choice(read)
        left.remove(offset)
        done.add(offset)
        before = tracker.position
        moved = tracker.complete(offset, [ProducerRecord("out", b"%d" % offset)])
        assert moved is (tracker.position != before)
        prefix = []
        for each in offsets:
            if each not in done:
                break
            prefix.append(each)
        assert (tracker.position.offset if tracker.position else 0) == (
            prefix[-1] + 1 if prefix else 0
        )
        expected = [b"%d" % each for each in prefix][committed_outputs:]
        assert [output.value for output in tracker.outputs] == expected
        assert tracker.incomplete == len(offsets) - len(rest) - len(prefix)
        if tracker.position is not None and rng.random() < 0.3:
            tracker.committed(tracker.position.offset, tracker.uncommitted, len(tracker.outputs))
            committed_outputs = len(prefix)
            assert tracker.is_committed and not tracker.uncommitted
    assert tracker.is_done


def test_a_commit_that_ends_late_leaves_what_was_done_meanwhile() -> None:
    tracker = CompletedOffsets()
    for offset in range(4):
        tracker.add(offset)
    tracker.complete(0, [ProducerRecord("out", b"0")])
    tracker.complete(1)
    assert tracker.position is not None
    position, records, outputs = tracker.position.offset, tracker.uncommitted, len(tracker.outputs)
    tracker.complete(2, [ProducerRecord("out", b"2")])
    tracker.committed(position, records, outputs)
    assert not tracker.is_committed and tracker.uncommitted == 1
    assert [output.value for output in tracker.outputs] == [b"2"]


def test_offsets_ascend_and_are_done_once() -> None:
    tracker = CompletedOffsets()
    tracker.add(5)
    with pytest.raises(ValueError, match="offset 5 was read after offset 5"):
        tracker.add(5)
    tracker.complete(5, [ProducerRecord("out")])
    assert not tracker.complete(5, [ProducerRecord("out")])
    assert len(tracker.outputs) == 1
    with pytest.raises(ValueError, match="offset 5 was read after offset 5"):
        tracker.add(5)


# -- order -----------------------------------------------------------------------------------------


@given(st.sampled_from(Order), st.booleans(), st.integers(1, 4), st.data())
def test_records_of_a_lane_are_handled_one_after_another(
    order: Order, one_lane: bool, most: int, data: st.DataObject
) -> None:
    partitions = [PartitionProgress(TopicPartition("orders", n)) for n in range(2)]
    scheduler = OrderedScheduler(order, one_lane=one_lane)
    keys = data.draw(st.lists(st.sampled_from([None, b"a", b"b"]), max_size=20))
    expected: dict[object, list[int]] = defaultdict(list)
    for offset, key in enumerate(keys):
        item = Item(record(offset, key), partitions[offset % 2])
        scheduler.add(item, 0.0)
        expected[lane_of(item, order)].append(offset)
    running: list[list[Item]] = []
    seen: dict[object, list[int]] = defaultdict(list)
    now = 0.0
    while scheduler.queued or running:
        taken = scheduler.take(now, most) if data.draw(st.booleans()) else []
        if taken:
            assert len(taken) <= most
            if one_lane:
                assert len({id(item.lane) for item in taken}) == 1
            for lane in {lane_of(item, order) for item in taken}:
                busy = {lane_of(item, order) for items in running for item in items}
                assert lane not in busy
            running.append(taken)
        elif running:
            items = running.pop(data.draw(st.integers(0, len(running) - 1)))
            retried = data.draw(st.booleans()) and len(items) == 1 and now < 5
            for item in reversed(items):
                if retried:
                    item.due = now + 1
                    scheduler.put_back(item, now, keep_order=True)
                else:
                    scheduler.finish(item, now)
            if not retried:
                for item in items:
                    seen[lane_of(item, order)].append(item.record.offset)
        else:
            now = max(now, scheduler.next_due or now)
    assert seen == expected
    assert not scheduler._lanes


def lane_of(item: Item, order: Order) -> object:
    if order is Order.PARTITION:
        return item.partition.tp
    if order is Order.NONE or item.record.key is None:
        return item.record.offset
    return (item.partition.tp, item.record.key)


def test_a_retried_record_blocks_its_key_or_lets_others_pass() -> None:
    for keep_order, expected in ((True, [2, 0, 1]), (False, [1, 2, 0])):
        scheduler, partition = OrderedScheduler(Order.KEY), PartitionProgress(TP)
        for offset, key in enumerate([b"a", b"a", b"b"]):
            scheduler.add(Item(record(offset, key), partition), 0.0)
        (failed,) = scheduler.take(0.0)
        failed.due = 1.0
        scheduler.put_back(failed, 0.0, keep_order=keep_order)
        seen = []
        for now in (0.0, 0.5, 1.0, 1.0):
            for item in scheduler.take(now):
                seen.append(item.record.offset)
                scheduler.finish(item, now)
            assert scheduler.next_due in (1.0, None)
        assert seen == expected


@pytest.mark.parametrize("most", [1, 4])
def test_the_oldest_records_are_handled_first(most: int) -> None:
    """Otherwise keys would take turns, and the position to commit would stay at the second record
    of the first key until each key had its turn.
    """
    scheduler, tracker = OrderedScheduler(Order.KEY), CompletedOffsets()
    partition, rng = PartitionProgress(TP), random.Random(1)
    for offset in range(1_000):
        tracker.add(offset)
        scheduler.add(Item(record(offset, b"%d" % rng.randrange(200)), partition), 0.0)
    running: deque[list[Item]] = deque()
    handled, concurrency = 0, 8
    while scheduler.queued:
        while len(running) < concurrency and (taken := scheduler.take(0.0, most)):
            running.append(taken)
        for item in running.popleft():
            tracker.complete(item.record.offset)
            scheduler.finish(item, 0.0)
            handled += 1
        position = tracker.position.offset if tracker.position else 0
        assert handled - position <= 3 * concurrency * most


def test_records_of_a_batch_that_failed_are_handled_alone() -> None:
    scheduler, partition = OrderedScheduler(Order.PARTITION), PartitionProgress(TP)
    for offset in range(4):
        scheduler.add(Item(record(offset), partition), 0.0)
    batch = scheduler.take(0.0, 3)
    for item in reversed(batch):
        item.alone = True
        scheduler.put_back(item, 0.0, keep_order=True)
    seen = []
    while items := scheduler.take(0.0, 3):
        seen.append([item.record.offset for item in items])
        for item in items:
            scheduler.finish(item, 0.0)
    assert seen == [[0], [1], [2], [3]]


def test_a_dropped_partition_leaves_nothing() -> None:
    scheduler = OrderedScheduler(Order.KEY)
    gone, kept = PartitionProgress(TP), PartitionProgress(TopicPartition("orders", 1))
    for offset, (partition, due) in enumerate([(gone, 0.0), (gone, 9.0), (kept, 0.0), (gone, 0.0)]):
        scheduler.add(Item(record(offset, b"k%d" % offset), partition, due), 0.0)
    (active,) = scheduler.take(0.0)
    gone.closed = True
    scheduler.drop(gone)
    assert scheduler.queued == 1 and scheduler.next_due is None
    scheduler.put_back(active, 0.0, keep_order=True)
    assert [item.partition for item in scheduler.take(10.0, 5)] == [kept]
    assert not scheduler.queued


# -- retries ---------------------------------------------------------------------------------------


def next_step(policy: RetryPolicy, error: Exception, topic: str, attempts: int) -> Decision:
    return decide(policy, "dead", error, topic, attempts, random.Random(1))


def test_retries_in_place_then_topics_then_the_dead_letter_topic() -> None:
    policy = RetryPolicy(
        attempts=3,
        backoff_ms=100,
        backoff_max_ms=150,
        keep_order=False,
        retry_topics=[RetryTopic("retry.1s", 1_000), RetryTopic("retry.1m", 60_000)],
    )
    failure = ValueError("x")
    first, second = (next_step(policy, failure, "orders", n) for n in (1, 2))
    assert isinstance(first, RetryInPlace) and 0.08 <= first.delay_s <= 0.12
    assert isinstance(second, RetryInPlace) and 0.12 <= second.delay_s <= 0.18
    assert next_step(policy, failure, "orders", 3) == Forward("retry.1s", False)
    assert next_step(policy, failure, "retry.1s", 1) == Forward("retry.1m", False)
    assert next_step(policy, failure, "retry.1m", 1) == Forward("dead", True)
    assert decide(policy, None, failure, "retry.1m", 1, random.Random()) == GiveUp()


def test_errors_that_a_retry_does_not_cure_go_to_the_dead_letter_topic_at_once() -> None:
    unreadable = DeserializationError("x", topic_partition=TP, offset=1)
    policy = RetryPolicy(not_retriable=(KeyError,))
    for error in (unreadable, KeyError("x")):
        assert next_step(policy, error, "orders", 1) == Forward("dead", True)


def test_the_backoff_of_many_attempts_is_a_number() -> None:
    policy = RetryPolicy(attempts=1_000_000, backoff_ms=1, backoff_max_ms=1_000)
    step = next_step(policy, ValueError(), "orders", 999_999)
    assert isinstance(step, RetryInPlace) and step.delay_s <= 1.2


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(0, 0.0), (9_500, 0.5), (10_000, 1.0), (99_000, 1.0)]
)
def test_a_record_of_a_retry_topic_waits_for_its_delay_at_most(
    timestamp: int, expected: float
) -> None:
    policy = RetryPolicy(keep_order=False, retry_topics=[RetryTopic("retry", 1_000)])
    assert retry_delay_s(policy, "retry", timestamp, 10_000) == expected
    assert retry_delay_s(policy, "orders", timestamp, 10_000) == 0.0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"attempts": 0}, "attempts=0: must be from 1"),
        ({"backoff_ms": -1}, "backoff_ms=-1: must be from 0"),
        ({"retry_topics": [("r", 1)]}, "set keep_order=False"),
        ({"retry_topics": [("", 1)], "keep_order": False}, "topic '': must be a name"),
        ({"retry_topics": [("r", -1)], "keep_order": False}, "delay_ms of 'r'=-1: must be from 0"),
        ({"retry_topics": [("r", 1), ("r", 2)], "keep_order": False}, "may be listed once"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        RetryPolicy(**settings)  # type: ignore[arg-type]


# -- headers and outputs ---------------------------------------------------------------------------


def test_headers_show_origin_error_and_attempts_over_several_topics() -> None:
    read = record(7, b"k")
    origin = origin_of(read, is_retry=False)
    sent = forwarded(read, origin, "retry", "billing", ValueError("no stock"), 3)
    assert (sent.topic, sent.key, sent.value) == ("retry", b"k", b"value")
    headers = dict(sent.headers)
    assert headers == {
        "h": b"1",
        PREFIX + "original-topic": b"orders",
        PREFIX + "original-partition": b"0",
        PREFIX + "original-offset": b"7",
        PREFIX + "original-timestamp": b"1007",
        PREFIX + "group-id": b"billing",
        PREFIX + "attempts": b"3",
        PREFIX + "error-class": b"builtins.ValueError",
        PREFIX + "error-message": b"no stock",
    }
    again = record(0, b"k", "retry")._replace(headers=tuple(sent.headers), partition=2)
    second = origin_of(again, is_retry=True)
    assert second == origin._replace(attempts=3)
    dead = forwarded(again, second, "dead", "billing", KeyError("x"), 4)
    assert dict(dead.headers)[PREFIX + "original-offset"] == b"7"
    assert dict(dead.headers)[PREFIX + "attempts"] == b"4"
    assert len(dead.headers) == len(sent.headers)


@given(st.lists(st.tuples(st.sampled_from(["original-offset", "attempts", "x"]), st.binary())))
def test_headers_of_other_programs_are_no_reason_to_fail(headers: list[tuple[str, bytes]]) -> None:
    read = record(3)._replace(headers=tuple((PREFIX + name, data) for name, data in headers))
    origin = origin_of(read, is_retry=True)
    assert (origin.topic, origin.offset, origin.attempts) == ("orders", 3, 0)
    assert origin.headers == ()


def test_a_long_error_is_cut_at_a_character() -> None:
    read = record(3)
    sent = forwarded(read, origin_of(read, is_retry=False), "t", "g", ValueError("ü" * 5_000), 1)
    message = dict(sent.headers)[PREFIX + "error-message"]
    assert message is not None and len(message) == 2_000 and message.decode() == "ü" * 1_000


def test_what_a_handler_may_return() -> None:
    output = ProducerRecord("out", b"v")
    assert outputs_of(None) == ()
    assert outputs_of(output) == (output,)
    assert outputs_of(iter([output, output])) == (output, output)
    for wrong in (5, "text", [b"v"], [("out", b"v")]):
        with pytest.raises(TypeError, match="the handler returned"):
            outputs_of(wrong)
