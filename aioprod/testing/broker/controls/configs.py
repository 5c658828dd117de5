"""Settings of topics and brokers, and quotas."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.testing.broker.cluster import NodeAddress
from aioprod.testing.broker.quotas.quotas import CLIENT_ID, USER
from aioprod.testing.broker.settings.configs import ALL_BROKERS
from aioprod.testing.broker.store import Store


class ConfigControls:
    """The settings and quotas of an embedded cluster."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def topic_configs(self, topic: str) -> dict[str, str]:
        """Return the effective settings of a topic by Kafka's names.

        Raises:
            BrokerError: if the topic does not exist.
        """
        return self._store.configs.topic_values(self._store.get_topic(topic).configs)

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Change settings of a topic. None resets a setting to the broker's default.

        Raises:
            BrokerError: if the topic does not exist or a value is invalid.
        """
        found = self._store.get_topic(topic)
        merged = {**found.configs, **configs}
        self._store.set_topic_configs(
            found, {name: value for name, value in merged.items() if value is not None}
        )

    def broker_configs(self, node_id: int) -> dict[str, str | None]:
        """Return the effective settings of a broker by Kafka's names. Secrets are None."""
        cluster = self._store.cluster
        address = cluster.find_address(cluster.check_node(node_id)) or NodeAddress(node_id, "", 0)
        return {
            described.setting.name: described.value
            for described in self._store.configs.describe_broker(address, None)
        }

    def alter_broker_configs(
        self, configs: Mapping[str, str | None], node_id: int | None = None
    ) -> None:
        """Change settings of one broker, or of all brokers if ``node_id`` is None.

        Raises:
            BrokerError: if a value is invalid, or a setting can't be changed while the broker is
                running.
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
        """Set quotas of a user, of a client id, or of a user's client id.

        ``producer_byte_rate`` and ``consumer_byte_rate``, in bytes per second and node, throttle
        clients; Kafka's other quotas are stored and described, but have no effect. As in Kafka, a
        client is throttled only when it has used its quota of the next ten seconds.

        Args:
            limits: the quotas by name; None removes one.
            user: the user's name; "" for all users that have no quota.
            client_id: the client id; "" for all client ids that have no quota.

        Raises:
            BrokerError: if a name or a value is invalid.
        """
        named = {USER: user, CLIENT_ID: client_id}
        entity = frozenset((kind, name or None) for kind, name in named.items() if name is not None)
        self._store.quotas.alter(entity, limits)
