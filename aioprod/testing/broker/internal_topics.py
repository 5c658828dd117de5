"""Kafka's internal topics. Like a real broker, the embedded one creates them when a client first
looks for a coordinator.

They stay empty: the broker keeps groups and transactions as objects.
"""

from __future__ import annotations

from aioprod.testing.broker.cluster import GROUP, TRANSACTION
from aioprod.testing.broker.store import Store, Topic

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
_INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, "__share_group_state"})

# Kafka's defaults of the broker settings offsets.topic.* and transaction.state.log.*.
_PARTITIONS = 50
_REPLICAS = 3
_OF_COORDINATORS = {GROUP: GROUP_TOPIC, TRANSACTION: TRANSACTION_TOPIC}
_COMMON = {"cleanup.policy": "compact", "segment.bytes": str(100 << 20)}
_CONFIGS = {
    GROUP_TOPIC: {**_COMMON, "compression.type": "producer"},
    TRANSACTION_TOPIC: {
        **_COMMON,
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
    },
}


def is_internal(name: str | None) -> bool:
    """Return whether this is an internal topic, which clients can't write to."""
    return name in _INTERNAL_TOPICS


def create_for_coordinator(store: Store, kind: int) -> None:
    """Create the topic of group coordinators (0) or transaction coordinators (1) if it does not
    exist.
    """
    name = _OF_COORDINATORS[kind]
    if name not in store.topics:
        create_by_use(store, name)


def create_by_use(store: Store, name: str) -> Topic:
    """Create a topic that a client asked for; raise RequestError if its name is invalid."""
    if name not in _CONFIGS:
        return store.create_topic(name)
    replicas = min(_REPLICAS, len(store.cluster.node_ids))
    least = {"min.insync.replicas": str(min(2, replicas))} if name == TRANSACTION_TOPIC else {}
    return store.create_topic(name, _PARTITIONS, {**_CONFIGS[name], **least}, replicas)
