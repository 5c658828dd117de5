"""Filters that Spark pushes down to a batch read (SPARK-51271): which of them can be applied by the
choice of partitions and offsets.

Needs PySpark 4.1. Spark pushes filters down only if ``spark.sql.python.filterPushdown.enabled`` is
true, and by default it refuses readers that accept filters. So such a reader is returned only in
the process that Spark starts for pushing filters down.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aioprod.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_PUSHDOWN_PROCESS = "pyspark.sql.worker.data_source_pushdown_filters"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of a read that filters leave.

    Attributes:
        topics, partitions: names and numbers; None for all.
        offsets: the lowest and the highest offset.
        since_ms: all records before the first one that is at least this new are unwanted, in ms
            since 1970; those after it may be older.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    lowest_partition: int = 0
    highest_partition: int = sys.maxsize
    lowest_offset: int = 0
    highest_offset: int = sys.maxsize
    since_ms: int | None = None

    def includes(self, tp: TopicPartition) -> bool:
        """Return whether a partition can have wanted records."""
        return (
            (self.topics is None or tp.topic in self.topics)
            and (self.partitions is None or tp.partition in self.partitions)
            and self.lowest_partition <= tp.partition <= self.highest_partition
        )

    def narrow(
        self,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        since: Mapping[TopicPartition, int],
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the part of the ranges that can have wanted records. ``since`` has the first
        offset at `since_ms` or later, or a negative one if a partition has none.
        """
        first, last = {}, {}
        for tp, offset in start.items():
            if not self.includes(tp):
                continue
            newer = since.get(tp, 0)
            first[tp] = max(offset, self.lowest_offset, end[tp] if newer < 0 else newer)
            last[tp] = min(end[tp], self.highest_offset + 1)
            first[tp] = min(first[tp], last[tp])
        return first, last


EVERYTHING = Wanted()


def in_pushdown_process() -> bool:
    """Return whether Spark has started this process to push filters down."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN_PROCESS in sys.modules or getattr(main, "name", "") == _PUSHDOWN_PROCESS


def push(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """Return the part of the read that the filters leave, and the filters that Spark must apply to
    the rows.

    Filters on topic, partition and offset are applied completely. A lower limit of the timestamp
    determines where to begin, but Spark must also apply it, because records may not be in the order
    of their timestamps. For the same reason, an upper limit is not used.
    """
    wanted, remaining = EVERYTHING, []
    for each in filters:
        column = _column_of(each)
        narrowed = _narrowed(wanted, each, column) if column is not None else None
        if narrowed is not None:
            wanted = narrowed
        if narrowed is None or (column == "timestamp" and _kind(each) != "IsNotNull"):
            remaining.append(each)
    return wanted, remaining


def _column_of(given: Filter) -> str | None:
    path = getattr(given, "attribute", None)
    return path[0] if path is not None and len(path) == 1 and path[0] in _COLUMNS else None


def _kind(given: Filter) -> str:
    return type(given).__name__


def _narrowed(wanted: Wanted, given: Filter, column: str) -> Wanted | None:
    """Return the part that the filter leaves, or None if it can't be applied."""
    if _kind(given) == "IsNotNull":
        return wanted  # no record lacks these columns
    value: Any = getattr(given, "value", None)
    if column == "topic":
        return _with_topics(wanted, _kind(given), value)
    if column == "timestamp":
        return _since(wanted, _kind(given), value)
    if _kind(given) == "In" and column == "partition":
        if not all(type(each) is int for each in value):
            return None
        return replace(wanted, partitions=_both(wanted.partitions, frozenset(value)))
    limits = _limits(_kind(given), value)
    if limits is None:
        return None
    low, high = limits
    names = f"lowest_{column}", f"highest_{column}"
    changes = {
        names[0]: max(getattr(wanted, names[0]), low),
        names[1]: min(getattr(wanted, names[1]), high),
    }
    return replace(wanted, **changes)


def _with_topics(wanted: Wanted, kind: str, value: Any) -> Wanted | None:
    names = value if kind == "In" else (value,)
    if kind not in ("EqualTo", "In") or not all(isinstance(name, str) for name in names):
        return None
    return replace(wanted, topics=_both(wanted.topics, frozenset(names)))


def _since(wanted: Wanted, kind: str, value: Any) -> Wanted | None:
    if kind not in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    milliseconds = (value - _EPOCH) // timedelta(milliseconds=1)
    return replace(wanted, since_ms=max(wanted.since_ms or 0, milliseconds))


def _limits(kind: str, value: Any) -> tuple[int, int] | None:
    """Return the lowest and highest integer that pass the filter."""
    if type(value) is not int:
        return None
    return {
        "EqualTo": (value, value),
        "GreaterThan": (value + 1, sys.maxsize),
        "GreaterThanOrEqual": (value, sys.maxsize),
        "LessThan": (0, value - 1),
        "LessThanOrEqual": (0, value),
    }.get(kind)


def _both(one: frozenset[Any] | None, other: frozenset[Any]) -> frozenset[Any]:
    return other if one is None else one & other
