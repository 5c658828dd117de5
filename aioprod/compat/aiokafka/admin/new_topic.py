"""An argument of ``create_topics``."""

from __future__ import annotations

from aioprod.compat.aiokafka.errors import IllegalArgumentError


class NewTopic:
    """A topic to create: with a number of partitions and a replication factor, or with both as -1
    and the replicas of each partition.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: dict[int, list[int]] | None = None,
        topic_configs: dict[str, str] | None = None,
    ) -> None:
        by_brokers = num_partitions == -1 or replication_factor == -1
        if by_brokers == (replica_assignments is None):
            raise IllegalArgumentError(
                "give num_partitions and replication_factor, or replica_assignments"
            )
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments: dict[int, list[int]] = replica_assignments or {}
        self.topic_configs: dict[str, str] = topic_configs or {}
