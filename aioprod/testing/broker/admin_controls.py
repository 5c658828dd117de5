"""The calls of the embedded broker that an administrator would make: settings, quotas, more
partitions, fewer records.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyio.from_thread import BlockingPortal

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.cluster import NodeAddress
from aioprod.testing.broker.quotas.limits import CLIENT_ID, USER
from aioprod.testing.broker.settings.configs import ALL_BROKERS
from aioprod.testing.broker.store import Store, StoreError


class AdminControls:
    """Of :class:`aioprod.testing.EmbeddedCluster`."""

    _store: Store

    def topic_configs(self, topic: str) -> dict[str, str]:
        """What each setting of a topic comes to, by Kafka's names. Raises BrokerError where there
        is no such topic.
        """
        return self._store.configs.topic_values(self._store.get_topic(topic).configs)

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Change settings of a topic; None makes it have none of its own. Raises BrokerError where
        there is no such topic, or for a wrong value.
        """
        found = self._store.get_topic(topic)
        merged = {**found.configs, **configs}
        self._store.set_topic_configs(
            found, {name: value for name, value in merged.items() if value is not None}
        )

    def broker_configs(self, node_id: int) -> dict[str, str | None]:
        """What each setting of a broker comes to, by Kafka's names; secrets are None."""
        cluster = self._store.cluster
        address = cluster.find_address(cluster.check_node(node_id)) or NodeAddress(node_id, "", 0)
        return {
            described.setting.name: described.value
            for described in self._store.configs.describe_broker(address, None)
        }

    def alter_broker_configs(
        self, configs: Mapping[str, str | None], node_id: int | None = None
    ) -> None:
        """Change settings of one broker, or of all (None). Raises BrokerError for a wrong value, or
        for one that a running broker can't change.
        """
        broker = ALL_BROKERS if node_id is None else str(self._store.cluster.check_node(node_id))
        merged = {**self._store.configs.overrides(broker), **configs}
        overrides = {name: value for name, value in merged.items() if value is not None}
        self._store.configs.check_broker(overrides, broker)
        self._store.configs.set_broker(overrides, broker)

    def set_quota(
        self,
        limits: Mapping[str, float | None],
        *,
        user: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """Limit a user, a client id or a user's client id; "" stands for each one that has no limit
        of its own.

        ``producer_byte_rate`` and ``consumer_byte_rate`` (bytes a second, for each node) make
        clients pause; Kafka's other limits are kept and shown only. None removes a limit. As in
        Kafka, a client may be ten seconds ahead. Raises BrokerError for what can't be limited.
        """
        named = {USER: user, CLIENT_ID: client_id}
        entity = frozenset((kind, name or None) for kind, name in named.items() if name is not None)
        self._store.quotas.alter(entity, limits)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete what a partition has before an offset, at most what consumers can read. Raises
        BrokerError where there is no such partition.
        """
        found = self._store.get_partition(topic, partition)
        self._store.delete_records(found, min(before_offset, found.high_watermark))

    def add_partitions(self, topic: str, num_partitions: int) -> None:
        """Have a topic grow to so many partitions. Raises BrokerError where there is no such topic,
        or where it has as many already.
        """
        found = self._store.get_topic(topic)
        present = len(found.partitions)
        if num_partitions <= present:
            raise StoreError(
                ErrorCode.INVALID_PARTITIONS,
                f"{topic} has {present} partitions: a topic can only get more",
            )
        factor = len(found.partitions[0].leadership.replicas)
        self._store.grow_topic(found, self._store.choose_replicas(num_partitions, factor)[present:])


class ThreadedAdminControls:
    """Of :class:`aioprod.testing.ThreadedCluster`."""

    _broker: AdminControls
    _portal: BlockingPortal

    def topic_configs(self, topic: str) -> dict[str, str]:
        """See :meth:`EmbeddedCluster.topic_configs`."""
        return self._portal.call(self._broker.topic_configs, topic)

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """See :meth:`EmbeddedCluster.alter_topic_configs`."""
        self._portal.call(self._broker.alter_topic_configs, topic, configs)

    def broker_configs(self, node_id: int) -> dict[str, str | None]:
        """See :meth:`EmbeddedCluster.broker_configs`."""
        return self._portal.call(self._broker.broker_configs, node_id)

    def alter_broker_configs(
        self, configs: Mapping[str, str | None], node_id: int | None = None
    ) -> None:
        """See :meth:`EmbeddedCluster.alter_broker_configs`."""
        self._portal.call(self._broker.alter_broker_configs, configs, node_id)

    def set_quota(
        self,
        limits: Mapping[str, float | None],
        *,
        user: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """See :meth:`EmbeddedCluster.set_quota`."""
        self._portal.call(lambda: self._broker.set_quota(limits, user=user, client_id=client_id))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """See :meth:`EmbeddedCluster.delete_records`."""
        self._portal.call(self._broker.delete_records, topic, partition, before_offset)

    def add_partitions(self, topic: str, num_partitions: int) -> None:
        """See :meth:`EmbeddedCluster.add_partitions`."""
        self._portal.call(self._broker.add_partitions, topic, num_partitions)
