"""The embedded broker for code that blocks: the same calls, from other threads than the
broker's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TypeVar

from anyio.from_thread import BlockingPortal

from aioprod.protocol.record_reader import Record
from aioprod.testing.broker.admin_controls import ThreadedAdminControls
from aioprod.testing.broker.broker import ClusterOnLoop, CoordinatorKind
from aioprod.testing.broker.fault_controls import ThreadedFaultControls
from aioprod.testing.broker.group_controls import ThreadedGroupControls
from aioprod.testing.broker.store import Topic
from aioprod.testing.broker.transactions import Transaction

T = TypeVar("T")


class ThreadedCluster(ThreadedFaultControls, ThreadedGroupControls, ThreadedAdminControls):
    """The calls of an :class:`EmbeddedCluster`, to be made from any thread but the broker's own.

    Events for ``hold`` belong to the broker's loop: make them with :meth:`call`
    (``broker.call(asyncio.Event)``) and set them with it.
    """

    def __init__(self, broker: ClusterOnLoop, portal: BlockingPortal) -> None:
        self._broker: ClusterOnLoop = broker
        self._portal = portal

    @property
    def bootstrap_servers(self) -> str:
        """See :attr:`EmbeddedCluster.bootstrap_servers`."""
        return self._portal.call(lambda: self._broker.bootstrap_servers)

    @property
    def topics(self) -> Mapping[str, Topic]:
        """A copy of the topics by name."""
        return self._portal.call(lambda: dict(self._broker.topics))

    def create_topic(
        self,
        name: str,
        num_partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> Topic:
        """See :meth:`EmbeddedCluster.create_topic`."""
        return self._portal.call(
            lambda: self._broker.create_topic(
                name, num_partitions, configs, replication_factor=replication_factor
            )
        )

    def delete_topic(self, name: str) -> None:
        """See :meth:`EmbeddedCluster.delete_topic`."""
        self._portal.call(self._broker.delete_topic, name)

    def records(
        self, topic: str, partition: int | None = None, *, committed_only: bool = False
    ) -> list[Record]:
        """See :meth:`EmbeddedCluster.records`."""
        return self._portal.call(
            lambda: self._broker.records(topic, partition, committed_only=committed_only)
        )

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """A copy of what :attr:`EmbeddedCluster.transactions` is."""
        return self._portal.call(lambda: deepcopy(dict(self._broker.transactions)))

    def expire_transaction(self, transactional_id: str) -> None:
        """See :meth:`EmbeddedCluster.expire_transaction`."""
        self._portal.call(self._broker.expire_transaction, transactional_id)

    def pause_markers(self) -> None:
        """See :meth:`EmbeddedCluster.pause_markers`."""
        self._portal.call(self._broker.pause_markers)

    def resume_markers(self) -> None:
        """See :meth:`EmbeddedCluster.resume_markers`."""
        self._portal.call(self._broker.resume_markers)

    def wait_for_records(
        self, topic: str, count: int, timeout_seconds: float = 10.0
    ) -> list[Record]:
        """See :meth:`EmbeddedCluster.wait_for_records`."""
        return self._portal.call(self._broker.wait_for_records, topic, count, timeout_seconds)

    def stop(self) -> None:
        """See :meth:`EmbeddedCluster.stop`; the records can still be read."""
        self._portal.call(self._broker.stop)

    def stop_all(self) -> None:
        """See :meth:`EmbeddedCluster.stop_all`."""
        self._portal.call(self._broker.stop_all)

    def start(self) -> None:
        """Start again after :meth:`stop` or :meth:`stop_all`, on the same ports."""
        self._portal.call(self._broker.start)

    def stop_node(self, node_id: int) -> None:
        """See :meth:`EmbeddedCluster.stop_node`."""
        self._portal.call(self._broker.stop_node, node_id)

    def kill_node(self, node_id: int) -> None:
        """See :meth:`EmbeddedCluster.kill_node`."""
        self._portal.call(self._broker.kill_node, node_id)

    def pause_replication(self, node_id: int) -> None:
        """See :meth:`EmbeddedCluster.pause_replication`."""
        self._portal.call(self._broker.pause_replication, node_id)

    def resume_replication(self, node_id: int) -> None:
        """See :meth:`EmbeddedCluster.resume_replication`."""
        self._portal.call(self._broker.resume_replication, node_id)

    def high_watermark(self, topic: str, partition: int) -> int:
        """See :meth:`EmbeddedCluster.high_watermark`."""
        return self._portal.call(self._broker.high_watermark, topic, partition)

    def in_sync_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """See :meth:`EmbeddedCluster.in_sync_replicas`."""
        return self._portal.call(self._broker.in_sync_replicas, topic, partition)

    def end_offsets(self, topic: str, partition: int) -> dict[int, int]:
        """See :meth:`EmbeddedCluster.end_offsets`."""
        return self._portal.call(self._broker.end_offsets, topic, partition)

    def start_node(self, node_id: int, *, new_port: bool = False) -> None:
        """See :meth:`EmbeddedCluster.start_node`."""
        self._portal.call(lambda: self._broker.start_node(node_id, new_port=new_port))

    def freeze_node(self, node_id: int) -> None:
        """See :meth:`EmbeddedCluster.freeze_node`."""
        self._portal.call(self._broker.freeze_node, node_id)

    def unfreeze_node(self, node_id: int) -> None:
        """See :meth:`EmbeddedCluster.unfreeze_node`."""
        self._portal.call(self._broker.unfreeze_node, node_id)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """See :attr:`EmbeddedCluster.node_ids`."""
        return self._broker.node_ids

    def address(self, node_id: int) -> str:
        """See :meth:`EmbeddedCluster.address`."""
        return self._portal.call(self._broker.address, node_id)

    def connection_count(self, node_id: int) -> int:
        """See :meth:`EmbeddedCluster.connection_count`."""
        return self._portal.call(self._broker.connection_count, node_id)

    def leader(self, topic: str, partition: int) -> int:
        """See :meth:`EmbeddedCluster.leader`."""
        return self._portal.call(self._broker.leader, topic, partition)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """See :meth:`EmbeddedCluster.move_leader`."""
        self._portal.call(self._broker.move_leader, topic, partition, node_id)

    def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """See :meth:`EmbeddedCluster.coordinator`."""
        return self._portal.call(self._broker.coordinator, kind, key)

    def move_coordinator(self, kind: CoordinatorKind, key: str, node_id: int) -> None:
        """See :meth:`EmbeddedCluster.move_coordinator`."""
        self._portal.call(self._broker.move_coordinator, kind, key, node_id)

    def call(self, function: Callable[[], T]) -> T:
        """Call something on the broker's loop and return what it gives."""
        return self._portal.call(function)
