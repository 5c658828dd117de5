"""Checks of the arguments of calls."""

from __future__ import annotations

from collections.abc import Iterable, Set

from aioprod import TopicPartition
from aioprod.compat.aiokafka.errors import IllegalStateError
from aioprod.foreign_text import shown


def check_most(name: str, given: object) -> None:
    """Check a number of records. ValueError: if it is invalid."""
    if not isinstance(given, int) or given < 1:
        raise ValueError(f"`{name}` must be a positive Integer")


def check_partitions(given: tuple[object, ...], error: type[Exception]) -> None:
    """Raise ``error`` unless all are partitions."""
    if not all(isinstance(tp, TopicPartition) for tp in given):
        raise error("partitions must be TopicPartition instances")


def check_assigned(partitions: Iterable[TopicPartition], assignment: Set[TopicPartition]) -> None:
    """Raise IllegalStateError if a partition is not assigned."""
    for tp in set(partitions) - assignment:
        raise IllegalStateError(f"Partition {shown(tp)} is not assigned")
