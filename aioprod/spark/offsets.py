"""Offsets in the JSON of Spark's Kafka connector, and arithmetic on them, without I/O."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from aioprod.errors import ConfigError
from aioprod.spark.json_options import read_numbers, read_partitions
from aioprod.types import TopicPartition

EARLIEST = -2
LATEST = -1

Offsets = dict[TopicPartition, int]
OffsetJson = dict[str, dict[str, int]]


class DataLossError(Exception):
    """Offsets that the query has not read yet do not exist any more: they were deleted by
    retention, or the topic was recreated.
    """


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """The start or end of a read, by offsets.

    Attributes:
        option: the option's name.
        default: -2 (earliest) or -1 (latest) for all partitions; None if ``explicit`` is set.
        explicit: the offset of each partition; -2 and -1 as above.
    """

    option: str
    default: int | None = None
    explicit: Mapping[TopicPartition, int] = field(default_factory=dict)

    def targets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the offset, or -1 or -2, of each partition.

        Raises:
            ConfigError: if explicit offsets leave a partition out, or name one that is not read.
        """
        if self.default is not None:
            return dict.fromkeys(partitions, self.default)
        return _each(self.option, self.explicit, partitions, "Use -2 for earliest, -1 for latest")


@dataclass(frozen=True, slots=True)
class TimestampSpec:
    """The start or end of a read, by time: the first record of each partition with this timestamp
    or a later one.

    Attributes:
        option: the option's name.
        timestamp: the timestamp for all partitions, in milliseconds since 1970; None if
            ``explicit`` is set.
        explicit: the timestamp of each partition.
        latest_if_none: True if the position in a partition without such a record is its end, False
            if this is an error.
    """

    option: str
    timestamp: int | None = None
    explicit: Mapping[TopicPartition, int] = field(default_factory=dict)
    latest_if_none: bool = True

    def timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the timestamp of each partition.

        Raises:
            ConfigError: if explicit timestamps leave a partition out, or name one that is not read.
        """
        if self.timestamp is not None:
            return dict.fromkeys(partitions, self.timestamp)
        return _each(
            self.option,
            self.explicit,
            partitions,
            "Use startingTimestamp or endingTimestamp for one time for all",
        )

    def targets(self, found: Offsets) -> Offsets:
        """Convert the brokers' responses, -1 if a partition has no such record, to offsets, or to
        -1 for the end.

        Raises:
            ConfigError: if a partition has no such record and ``latest_if_none`` is False.
        """
        none = sorted(tp for tp, offset in found.items() if offset == LATEST)
        if none and not self.latest_if_none:
            timestamps = self.timestamps(found.keys())
            raise ConfigError(
                f"option {self.option}: no record at or after "
                + ", ".join(f"{timestamps[tp]} in {tp.topic}-{tp.partition}" for tp in none)
                + (
                    ". Set the option startingOffsetsByTimestampStrategy=latest to begin at the "
                    "end there"
                )
            )
        return found


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A range of a partition from ``start`` up to, but not including, ``end``.

    Attributes:
        topic_id: the id of the topic that these offsets belong to; None if it is not known.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: uuid.UUID | None = None

    @property
    def size(self) -> int:
        """The number of offsets; the number of records may be smaller."""
        return self.end - self.start


def parse_offsets(option: str, text: str | None, *, default: int) -> OffsetSpec:
    """Parse ``earliest``, ``latest`` or ``{"topic": {"0": 23, "1": -2}}``.

    Raises:
        ConfigError: if the text has another form.
    """
    if text is None:
        return OffsetSpec(option, default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetSpec(option, EARLIEST if word == "earliest" else LATEST)
    expected = 'earliest, latest or JSON like {"topic":{"0":23,"1":-2}}'
    return OffsetSpec(option, None, read_numbers(option, text, EARLIEST, expected))


def parse_timestamps(option: str, text: str) -> dict[TopicPartition, int]:
    """Parse ``{"topic": {"0": 1700000000000}}``: milliseconds since 1970.

    Raises:
        ConfigError: if the format is different, or a number is negative.
    """
    expected = 'JSON like {"topic":{"0":1700000000000}}, in milliseconds since 1970'
    return read_numbers(option, text, 0, expected)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Parse ``{"topic": [0, 1]}`` of the option ``assign``.

    Raises:
        ConfigError: if the format is different.
    """
    return read_partitions("assign", text, 'JSON like {"topicA":[0,1],"topicB":[2,4]}')


def offsets_from_json(given: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Flatten ``{"topic": {"0": 23}}``, the format of Spark's checkpoint."""
    return {
        TopicPartition(topic, int(partition)): _whole(offset)
        for topic, partitions in given.items()
        for partition, offset in partitions.items()
    }


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    """Reverse `offsets_from_json`, sorted so that equal offsets result in equal text."""
    nested: OffsetJson = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested


def limit_offsets(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    max_offsets: int | None,
) -> Offsets:
    """Limit a micro-batch to about `max_offsets`, each partition in proportion to its backlog, like
    Spark's connector.

    A partition with a backlog advances by at least one, so that a query makes progress even if the
    limit is below the number of partitions.
    """
    backlog = {tp: max(0, end - start.get(tp, 0)) for tp, end in latest.items()}
    total = sum(backlog.values())
    if max_offsets is None or total <= max_offsets:
        return dict(latest)
    return {
        tp: start.get(tp, 0) + max(1, max_offsets * size // total) if size else latest[tp]
        for tp, size in backlog.items()
    }


def plan_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Plan the ranges of a read: one for each partition with records, or several if partitions are
    split, like Spark's connector.

    Args:
        min_partitions: the approximate minimum number of ranges; large partitions are split in
            proportion.
        max_records: the maximum number of offsets in a range; takes precedence.
    """
    ranges = [
        OffsetRange(tp.topic, tp.partition, start[tp], end[tp])
        for tp in sorted(end)
        if end[tp] > start[tp]
    ]
    if max_records is not None:
        ranges = [part for item in ranges for part in _split(item, -(-item.size // max_records))]
    if min_partitions is None or len(ranges) >= min_partitions:
        return ranges
    total = sum(item.size for item in ranges)
    small = [item for item in ranges if _share(item.size, total, min_partitions) == 1]
    # Partitions that are too small to be split get one task each; the others share the remaining
    # tasks.
    total -= sum(item.size for item in small)
    left = max(min_partitions - len(small), 1)
    return [
        part
        for item in ranges
        for part in _split(item, 1 if item in small else _share(item.size, total, left))
    ]


def share_tasks(
    ranges: Iterable[OffsetRange], min_records: int | None, max_records: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """Assign the ranges to tasks. Ranges with fewer than ``min_records`` offsets share tasks, in
    their order, until a task has as many; no task gets more than ``max_records``.
    """
    if min_records is None:
        return [(item,) for item in ranges]
    tasks: list[tuple[OffsetRange, ...]] = []
    shared: list[OffsetRange] = []
    size = 0
    for item in ranges:
        if item.size >= min_records:
            tasks.append((item,))
            continue
        if shared and max_records is not None and size + item.size > max_records:
            tasks.append(tuple(shared))
            shared, size = [], 0
        shared.append(item)
        size += item.size
        if size >= min_records:
            tasks.append(tuple(shared))
            shared, size = [], 0
    return [*tasks, tuple(shared)] if shared else tasks


def _share(size: int, total: int, parts: int) -> int:
    return max((2 * size * parts + total) // (2 * total), 1)  # rounded half up


def backwards(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[str]:
    """Describe each partition that does not exist any more, or ends before the query's position
    because the topic was recreated or records were lost.
    """
    gone = [
        f"{tp.topic}-{tp.partition} is gone (the query stands at offset {offset})"
        for tp, offset in start.items()
        if tp not in end
    ]
    return gone + [
        f"{tp.topic}-{tp.partition} ends at offset {end[tp]} now, the query stands at {offset}"
        for tp, offset in start.items()
        if offset > end.get(tp, offset)
    ]


def missed(start: Mapping[TopicPartition, int], begin: Mapping[TopicPartition, int]) -> list[str]:
    """Describe each partition that was created since ``start`` and has already lost its first
    records.
    """
    return [
        f"{tp.topic}-{tp.partition} is new and begins at offset {offset}"
        for tp, offset in begin.items()
        if offset > 0 and tp not in start
    ]


def check_not_lost(
    start: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> tuple[Offsets, list[str]]:
    """Compare the query's positions with the offsets that the brokers still have.

    Returns:
        The start of each partition, moved to existing data, and a description of each loss.
    """
    moved: Offsets = {}
    losses: list[str] = []
    for tp, offset in start.items():
        if tp not in latest:
            losses.append(
                f"{tp.topic}-{tp.partition} is gone (the query stands at offset {offset})"
            )
            continue
        moved[tp] = offset
        if offset < earliest[tp]:
            losses.append(
                f"{tp.topic}-{tp.partition} begins at offset {earliest[tp]} now, the query "
                f"stands at {offset}"
            )
            moved[tp] = earliest[tp]
        elif offset > latest[tp]:
            losses.append(
                f"{tp.topic}-{tp.partition} ends at offset {latest[tp]} now, the query "
                f"stands at {offset}"
            )
            moved[tp] = latest[tp]
    return moved, losses


def _split(item: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    parts = min(parts, item.size)
    bounds = [item.start + item.size * index // parts for index in range(parts + 1)]
    return [
        OffsetRange(item.topic, item.partition, low, high)
        for low, high in itertools.pairwise(bounds)
    ]


def _each(
    option: str,
    given: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition],
    hint: str,
) -> dict[TopicPartition, int]:
    missing = sorted(set(partitions) - set(given))
    foreign = sorted(set(given) - set(partitions))
    if missing or foreign:
        raise ConfigError(
            f"option {option} must name each partition that is read and no other; missing: "
            f"{_names(missing)}; not read: {_names(foreign)}. {hint}"
        )
    return dict(given)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return value


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{tp.topic}-{tp.partition}" for tp in partitions) or "none"
