"""Leaders, followers, and the progress of replication."""

from __future__ import annotations

from aioprod.errors import ConfigError
from aioprod.testing.broker.cluster import Cluster
from aioprod.testing.broker.store import Store


class ReplicaControls:
    """The replicas of an embedded cluster's partitions."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition, or -1 if it has no leader.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._store.get_partition(topic, partition).leadership.leader

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make a node the leader of a partition, with the next leader epoch. Records that only the
        old leader has are lost.

        Raises:
            BrokerError: if the partition does not exist.
            ConfigError: if the node is stopped or is not an in-sync replica.
        """
        chosen = self._store.get_partition(topic, partition)
        self._cluster.check_running(node_id)
        leadership = chosen.leadership
        if node_id not in leadership.replicas:
            raise ConfigError(
                f"node_id={node_id}: must be one of the replicas of {topic}-{partition}: "
                f"{list(leadership.replicas)}"
            )
        if node_id not in leadership.in_sync:
            raise ConfigError(
                f"node_id={node_id}: must be one of the in-sync replicas of {topic}-{partition}: "
                f"{list(leadership.in_sync)}"
            )
        self._store.move_leader(chosen, node_id)

    def pause_replication(self, node_id: int) -> None:
        """Stop replication to a node until :meth:`resume_replication`. The partitions that the node
        leads are not affected.

        Producers with acks=all wait for the node, and consumers do not see records that it lacks,
        until it leaves the in-sync replicas: ``replica_lag_time_max_ms`` after the first record
        that it lacks. New partitions count it as in sync at first, too.
        """
        self._cluster.paused.add(self._cluster.check_node(node_id))
        self._store.adapt_all()

    def resume_replication(self, node_id: int) -> None:
        """Let a node immediately fetch all records that it lacks, so that it is in sync again."""
        self._cluster.paused.discard(self._cluster.check_node(node_id))
        self._store.adapt_all()

    def high_watermark(self, topic: str, partition: int) -> int:
        """Return the offset up to which all in-sync replicas have a partition: consumers read only
        records before it.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._store.get_partition(topic, partition).high_watermark

    def in_sync_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the nodes of a partition's in-sync replicas.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._store.get_partition(topic, partition).leadership.in_sync

    def end_offsets(self, topic: str, partition: int) -> dict[int, int]:
        """Return the end offset of each replica's log, by node.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._store.get_partition(topic, partition).end_offsets
