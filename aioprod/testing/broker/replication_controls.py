"""The calls of an embedded cluster that are about replicas: who has what, and followers that lag on
demand.
"""

from __future__ import annotations

from aioprod.testing.broker.cluster import Cluster
from aioprod.testing.broker.store import Store


class ReplicationControls:
    """A part of :class:`aioprod.testing.EmbeddedCluster`."""

    _store: Store
    _cluster: Cluster

    def pause_replication(self, node_id: int) -> None:
        """Have a node get no records from leaders, until :meth:`resume_replication`. What it leads
        itself goes on.

        With acks=all producers wait for it, and consumers do not see what it lacks, until it is no
        longer in sync: ``replica_lag_time_max_ms`` after the first record that it lacks. A new
        partition counts it as in sync, too.
        """
        self._cluster.paused.add(self._cluster.check_node(node_id))
        self._store.adapt_all()

    def resume_replication(self, node_id: int) -> None:
        """Have a node get everything that it lacks at once, and be in sync."""
        self._cluster.paused.discard(self._cluster.check_node(node_id))
        self._store.adapt_all()

    def high_watermark(self, topic: str, partition: int) -> int:
        """The offset up to which consumers see a partition: all replicas in sync have what is
        before. Raises BrokerError where there is none.
        """
        return self._store.get_partition(topic, partition).high_watermark

    def in_sync_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """The nodes that count as in sync. Raises BrokerError where there is no such partition."""
        return self._store.get_partition(topic, partition).leadership.in_sync

    def end_offsets(self, topic: str, partition: int) -> dict[int, int]:
        """Where the log of each replica ends, by node. Raises BrokerError where there is no such
        partition.
        """
        return self._store.get_partition(topic, partition).end_offsets
