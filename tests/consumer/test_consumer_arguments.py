"""Wrong arguments of the consumer's calls are refused at once by name, without any effect on what
is read.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioprod import ConfigError, Consumer, ConsumerClosedError, OffsetAndMetadata
from aioprod.testing import EmbeddedCluster
from tests.consumer.number_topics import TOPIC, TP, consumer_of, fill, numbers, reading, take

Call = Callable[[Any], Awaitable[object] | object]

WRONG: dict[str, tuple[Call, str]] = {
    "topics that are no list": (lambda consumer: consumer.subscribe(5), "topics=5"),
    "a topic that is not a name": (
        lambda consumer: consumer.subscribe(["t", 5]),
        "topic 5: must be a name",
    ),
    "a topic without a name": (lambda consumer: consumer.subscribe([""]), "topic ''"),
    "no topics at all": (lambda consumer: consumer.subscribe(None), "topics=None"),
    "a pattern that is not a string": (
        lambda consumer: consumer.subscribe(pattern=b"a"),
        "pattern=<bytes>",
    ),
    "a listener that is none": (
        lambda consumer: consumer.subscribe(["t"], listener=5),
        "listener=5: must be a RebalanceListener",
    ),
    "a number to assign": (lambda consumer: consumer.assign(5), "partitions=5"),
    "numbers to assign": (lambda consumer: consumer.assign([0]), "partition 0"),
    "a partition below 0": (lambda consumer: consumer.assign([(TOPIC, -1)]), "partition .*-1"),
    "a partition that is text": (
        lambda consumer: consumer.assign([(TOPIC, "0")]),
        "partition .*'0'",
    ),
    "an offset that is text": (lambda consumer: consumer.seek(TP, "5"), "seek to offset '5'"),
    "half an offset": (lambda consumer: consumer.seek(TP, 1.5), "seek to offset 1.5"),
    "an offset of more than 63 bits": (
        lambda consumer: consumer.seek(TP, 2**63),
        "seek to offset 9223372036854775808",
    ),
    "a committed offset below 0": (
        lambda consumer: consumer.seek(TP, OffsetAndMetadata(-1)),
        "seek to offset -1",
    ),
    "two lists to seek to": (
        lambda consumer: consumer.seek_to_beginning([TP], [TP]),
        r"partition \[",
    ),
    "two lists to pause": (lambda consumer: consumer.pause([TP], [TP]), r"partition \["),
    "two lists to resume": (lambda consumer: consumer.resume([TP], [TP]), r"partition \["),
    "a topic's lag": (lambda consumer: consumer.lag(TOPIC), "partition 'numbers'"),
    "a topic's position": (lambda consumer: consumer.position(TOPIC), "partition 'numbers'"),
    "times without partitions": (lambda consumer: consumer.offsets_for_times([TP]), "timestamps="),
    "a time that is text": (
        lambda consumer: consumer.offsets_for_times({TP: "0"}),
        "timestamp '0'",
    ),
    "a number's ends": (lambda consumer: consumer.end_offsets(5), "partitions=5"),
    "a number for a topic": (lambda consumer: consumer.partitions_for_topic(5), "topic 5"),
    "half a record": (lambda consumer: consumer.getmany(2.5), "max_records=2.5"),
    "a limit below 0": (lambda consumer: consumer.getmany(timeout_ms=-1), "timeout_ms=-1"),
    "a limit that is text": (lambda consumer: consumer.getmany(timeout_ms="5"), "timeout_ms='5'"),
    "a limit that is not a number": (
        lambda consumer: consumer.position(TP, timeout_ms=math.nan),
        "timeout_ms=nan",
    ),
    "a limit that is a switch": (
        lambda consumer: consumer.topics(timeout_ms=True),
        "timeout_ms=True",
    ),
    "the end's limit": (lambda consumer: consumer.close("soon"), "timeout_ms='soon'"),
    "offsets without partitions": (lambda consumer: consumer.commit([5]), "offsets="),
    "a note that is not a string": (
        lambda consumer: consumer.commit({TP: (5, 6)}),
        r"offset \(5, 6\)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_wrong_is_named_and_changes_nothing(
    broker: EmbeddedCluster, name: str
) -> None:
    await fill(broker, 20)
    call, text = WRONG[name]
    async with reading(broker, max_poll_records=5) as consumer:
        assert numbers(await take(consumer, 2)) == [0, 1]
        with pytest.raises(ConfigError, match=text):
            answer = call(consumer)
            if isinstance(answer, Awaitable):
                await answer
        assert consumer.assignment() == {TP} and not consumer.paused()
        assert numbers(await take(consumer, 18)) == list(range(2, 20))


@pytest.mark.parametrize(
    "topics", [("t", "u"), (["t", "u"],), (("t", "u"),), ({"t", "u"},), (frozenset(("t", "u")),)]
)
def test_topics_are_arguments_or_one_list(topics: Any) -> None:
    assert Consumer(*topics).subscription() == {"t", "u"}
    assert Consumer.from_config({}, *topics).subscription() == {"t", "u"}


@pytest.mark.parametrize("wrong", [["t", 5], [["t"]], ["t", ["u"]], b"t", {"t": 1}, None, 5, ""])
def test_other_topics_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^topics? .*: must be "):
        Consumer(wrong)
    with pytest.raises(ConfigError, match=r"^topics? .*: must be "):
        Consumer("t", wrong)


async def test_a_limit_may_be_any_number_from_0_on(broker: EmbeddedCluster) -> None:
    await fill(broker, 3)
    async with reading(broker) as consumer:
        assert numbers(await consumer.getmany(1, timeout_ms=math.inf)) == [0]
        assert numbers(await consumer.getmany(1, timeout_ms=0.5)) == [1]
        assert await consumer.position((TOPIC, 0), timeout_ms=0) == 2  # type: ignore[arg-type]


async def test_a_closed_consumer_takes_no_orders(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC)
    consumer = consumer_of(broker)
    consumer.assign([TP])
    await consumer.start()
    await consumer.close()
    calls: list[Callable[[], None]] = [
        lambda: consumer.seek(TP, 0),
        lambda: consumer.pause(TP),
        lambda: consumer.assign([]),
        lambda: consumer.subscribe(["t"]),
    ]
    for call in calls:
        with pytest.raises(ConsumerClosedError):
            call()
    assert consumer.assignment() == {TP}, "looking is allowed"
