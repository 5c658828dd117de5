"""An argument of ``create_partitions``."""

from __future__ import annotations


class NewPartitions:
    """The number of partitions that a topic is to have, and the replicas of the new ones."""

    def __init__(self, total_count: int, new_assignments: list[list[int]] | None = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments
