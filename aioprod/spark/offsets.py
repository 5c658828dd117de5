"""Offsets in the JSON of Spark's Kafka connector, and the arithmetic on them: no network here."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from aioprod.errors import ConfigError
from aioprod.types import TopicPartition

EARLIEST = -2
LATEST = -1

Offsets = dict[TopicPartition, int]
OffsetJson = dict[str, dict[str, int]]


class DataLossError(Exception):
    """Offsets that the query has still to read are gone: deleted by retention, or the topic was made anew."""


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Where to begin or end.

    Attributes:
        default: -2 (earliest) or -1 (latest) for every partition; None where each has its own.
        explicit: offset per partition; -2 and -1 as above.
    """

    default: int | None = None
    explicit: Mapping[TopicPartition, int] = field(default_factory=dict)

    def targets(self, option: str, partitions: Collection[TopicPartition]) -> Offsets:
        """The offset, or -1 or -2, of each partition.

        Raises:
            ConfigError: explicit offsets that leave a partition out, or name one that is not read.
        """
        if self.default is not None:
            return dict.fromkeys(partitions, self.default)
        missing = sorted(set(partitions) - set(self.explicit))
        foreign = sorted(set(self.explicit) - set(partitions))
        if missing or foreign:
            raise ConfigError(
                f"option {option} must name each partition that is read and no other; "
                f"missing: {_names(missing)}; not read: {_names(foreign)}. Use -2 for earliest, -1 for latest"
            )
        return dict(self.explicit)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A piece of a partition: from ``start`` up to, but without, ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets; the number of records may be smaller."""
        return self.end - self.start


def parse_offsets(option: str, text: str | None, *, default: int) -> OffsetSpec:
    """Parse ``earliest``, ``latest`` or ``{"topic": {"0": 23, "1": -2}}``.

    Raises:
        ConfigError: none of these.
    """
    if text is None:
        return OffsetSpec(default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetSpec(EARLIEST if word == "earliest" else LATEST)
    expected = f'option {option} must be earliest, latest or JSON like {{"topic":{{"0":23,"1":-2}}}}, got {text!r}'
    try:
        explicit = offsets_from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(expected) from error
    if not explicit or min(explicit.values()) < EARLIEST:
        raise ConfigError(expected)
    return OffsetSpec(None, explicit)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Parse ``{"topic": [0, 1]}`` of the option ``assign``.

    Raises:
        ConfigError: another shape.
    """
    expected = f'option assign must be JSON like {{"topicA":[0,1],"topicB":[2,4]}}, got {text!r}'
    try:
        given = json.loads(text)
        found = [TopicPartition(topic, _whole(partition)) for topic, partitions in given.items() for partition in partitions]
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(expected) from error
    if not found or min(tp.partition for tp in found) < 0:
        raise ConfigError(expected)
    return tuple(sorted(set(found)))


def offsets_from_json(given: Mapping[str, Mapping[str, int]]) -> Offsets:
    """``{"topic": {"0": 23}}`` as Spark keeps it in the checkpoint, to a flat mapping."""
    return {
        TopicPartition(topic, int(partition)): _whole(offset) for topic, partitions in given.items() for partition, offset in partitions.items()
    }


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    """The opposite of `offsets_from_json`, sorted so that equal offsets give equal text."""
    nested: OffsetJson = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested


def limit_offsets(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], max_offsets: int | None) -> Offsets:
    """Cut a micro-batch to about `max_offsets`, each partition in proportion to its backlog, as Spark's connector does.

    A partition with a backlog moves by at least one, so that a limit below the number of partitions still gets on.
    """
    backlog = {tp: max(0, end - start.get(tp, 0)) for tp, end in latest.items()}
    total = sum(backlog.values())
    if max_offsets is None or total <= max_offsets:
        return dict(latest)
    return {tp: start.get(tp, 0) + max(1, max_offsets * size // total) if size else latest[tp] for tp, size in backlog.items()}


def plan_ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], min_partitions: int | None = None) -> list[OffsetRange]:
    """The tasks of a read: one per partition that has something, more by splitting where `min_partitions` asks for it."""
    ranges = [OffsetRange(tp.topic, tp.partition, start[tp], end[tp]) for tp in sorted(end) if end[tp] > start[tp]]
    if min_partitions is None or len(ranges) >= min_partitions or not ranges:
        return ranges
    total = sum(item.size for item in ranges)
    return [part for item in ranges for part in _split(item, max(1, round(min_partitions * item.size / total)))]


def check_not_lost(
    start: Mapping[TopicPartition, int], earliest: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> tuple[Offsets, list[str]]:
    """Compare where the query stands with what the brokers still have.

    Returns:
        the start of each partition moved to where data exists, and one sentence for each loss.
    """
    moved: Offsets = {}
    losses: list[str] = []
    for tp, offset in start.items():
        if tp not in latest:
            losses.append(f"{tp.topic}-{tp.partition} is gone (the query stands at offset {offset})")
            continue
        moved[tp] = offset
        if offset < earliest[tp]:
            losses.append(f"{tp.topic}-{tp.partition} begins at offset {earliest[tp]} now, the query stands at {offset}")
            moved[tp] = earliest[tp]
        elif offset > latest[tp]:
            losses.append(f"{tp.topic}-{tp.partition} ends at offset {latest[tp]} now, the query stands at {offset}")
            moved[tp] = latest[tp]
    return moved, losses


def _split(item: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    parts = min(parts, item.size)
    bounds = [item.start + item.size * index // parts for index in range(parts + 1)]
    return [OffsetRange(item.topic, item.partition, low, high) for low, high in itertools.pairwise(bounds)]


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return value


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{tp.topic}-{tp.partition}" for tp in partitions) or "none"
