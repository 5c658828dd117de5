"""The differences between Apache Kafka and services that speak its protocol: a table of quirks,
each with its source, and a table of services, each with its quirks. `imitation.py` applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aioprod.codecs import Codec
from aioprod.errors import ConfigError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.primitives import ZERO_UUID

#: In `Quirk.newest`: the service does not have the API.
ABSENT = -1
Change = Callable[[Any], None]
_NEW_GROUPS = (
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
_TRANSACTIONS = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
)


def _each_partition(reply: Any) -> Iterable[Any]:
    for topic in reply.topics:
        yield from topic.partitions


def _without_topic_ids(reply: Any) -> None:
    for topic in reply.topics:
        topic.topic_id = ZERO_UUID


def _without_epochs(reply: Any) -> None:
    for partition in _each_partition(reply):
        partition.leader_epoch = -1


def _with_epoch_of_long_ago(reply: Any) -> None:
    for partition in _each_partition(reply):
        partition.leader_epoch += 7


def _without_session(reply: Any) -> None:
    reply.session_id = 0


def _without_controller(reply: Any) -> None:
    reply.controller_id = -1


@dataclass(frozen=True, slots=True)
class Quirk:
    """A difference between a service and Apache Kafka.

    Attributes:
        name: for ``imitate``.
        what: a description in one sentence.
        source: where the quirk is documented or reported.
        newest: the newest supported version of some APIs, or `ABSENT`.
        second_node_only: True if ``newest`` applies only to nodes with even ids.
        resets_api_versions_above: the newest version of ApiVersions that does not reset the
            connection.
        closes_on_route: True if ApiVersions with a cluster and node id closes the connection.
        most_request_bytes: the largest request that does not reset the connection.
        changes: functions that modify responses.
        throttle_ms: the throttle time in responses to Produce and Fetch.
        acknowledges_after_s: the minimum and maximum time that Produce takes.
        topic_is_ready_after_s: how long a new topic has no leader.
        codecs: the codecs of batches that are accepted; None for all.
        any_node_serves: True if each node claims to lead and coordinate everything.
        most_connections: the maximum number of connections to a node; others are closed at once.
        idle_s: the seconds after which an idle connection is dropped silently: the next request
            resets it.
        lifetime_s: the seconds after which any connection is closed.
        advertised_host: the host name in responses.
        has_balancer: True if the bootstrap address is that of a load balancer, which is not in the
            metadata.
    """

    name: str
    what: str
    source: str
    newest: Mapping[int, int] = field(default_factory=dict)
    second_node_only: bool = False
    resets_api_versions_above: int | None = None
    closes_on_route: bool = False
    most_request_bytes: int | None = None
    changes: Mapping[int, Change] = field(default_factory=dict)
    throttle_ms: int = 0
    acknowledges_after_s: tuple[float, float] | None = None
    topic_is_ready_after_s: float = 0.0
    codecs: frozenset[Codec] | None = None
    any_node_serves: bool = False
    most_connections: int | None = None
    idle_s: float | None = None
    lifetime_s: float | None = None
    advertised_host: str | None = None
    has_balancer: bool = False


_QUIRKS = (
    Quirk(
        "resets-api-versions-4",
        "resets the connection at ApiVersions 4 and newer",
        "twmb/franz-go#1025, twmb/franz-go#1022, dpkp/kafka-python#2602",
        newest={ApiKey.API_VERSIONS: 3},
        resets_api_versions_above=3,
    ),
    Quirk(
        "resets-api-versions-1",
        "resets the connection at ApiVersions 1 and newer, as brokers before KIP-511 did",
        "KIP-511: Kafka 2.4 and newer respond with UNSUPPORTED_VERSION, and clients downgrade",
        newest={ApiKey.API_VERSIONS: 0},
        resets_api_versions_above=0,
    ),
    Quirk(
        "closes-on-route",
        "closes the connection if ApiVersions 5 has a cluster and node id (KIP-1242)",
        "tansu 0.6 (crates.io), with its memory storage; the fields: apache/kafka#22187",
        closes_on_route=True,
    ),
    Quirk(
        "old-metadata",
        "has Metadata up to version 9, without topic ids, and newer requests that need them",
        "twmb/franz-go#1312",
        newest={ApiKey.METADATA: 9},
    ),
    Quirk(
        "zero-topic-ids",
        "has Metadata with topic ids that are all zero",
        "apache/kafka#15968 (KAFKA-10551): an inter.broker.protocol.version below 2.8",
        newest=dict.fromkeys(_NEW_GROUPS, ABSENT),
        changes={ApiKey.METADATA: _without_topic_ids},
    ),
    Quirk(
        "event-hubs-versions",
        "has a mix of old and new versions that no release of Kafka has",
        "oliveigah/klife#13, Azure/azure-event-hubs-for-kafka#209",
        newest={
            ApiKey.PRODUCE: 7,
            ApiKey.FETCH: 6,
            ApiKey.LIST_OFFSETS: 8,
            ApiKey.METADATA: 5,
            ApiKey.OFFSET_COMMIT: 8,
            ApiKey.OFFSET_FETCH: 8,
            ApiKey.FIND_COORDINATOR: 4,
            ApiKey.JOIN_GROUP: 9,
            ApiKey.HEARTBEAT: 4,
            ApiKey.LEAVE_GROUP: 5,
            ApiKey.DESCRIBE_CONFIGS: 2,
            ApiKey.CREATE_PARTITIONS: 1,
            ApiKey.DELETE_GROUPS: 0,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: ABSENT,
            ApiKey.DESCRIBE_ACLS: ABSENT,
            ApiKey.CREATE_ACLS: ABSENT,
            ApiKey.DELETE_ACLS: ABSENT,
            ApiKey.DESCRIBE_CLUSTER: ABSENT,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: ABSENT,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: 0,
        },
    ),
    Quirk(
        "rolling-upgrade",
        "has old versions on one node and new ones on another, for as long as an upgrade takes",
        "tulios/kafkajs#1656",
        newest={
            **dict.fromkeys(_NEW_GROUPS, ABSENT),
            ApiKey.PRODUCE: 8,
            ApiKey.FETCH: 11,
            ApiKey.LIST_OFFSETS: 5,
            ApiKey.METADATA: 9,
            ApiKey.OFFSET_COMMIT: 8,
            ApiKey.OFFSET_FETCH: 7,
            ApiKey.FIND_COORDINATOR: 3,
            ApiKey.API_VERSIONS: 3,
            ApiKey.JOIN_GROUP: 7,
        },
        second_node_only=True,
    ),
    Quirk(
        "no-leader-epochs",
        "has no leader epochs (KIP-320), but -1 in all responses",
        "redpanda-data/redpanda#3788, redpanda-data/redpanda#1181",
        newest={ApiKey.OFFSET_FOR_LEADER_EPOCH: ABSENT},
        changes={ApiKey.METADATA: _without_epochs, ApiKey.LIST_OFFSETS: _without_epochs},
    ),
    Quirk(
        "wrong-leader-epochs",
        "has leader epochs in Metadata below version 9 that are not those of the leader",
        "KAFKA-9212, dpkp/kafka-python#2997",
        newest={ApiKey.METADATA: 8, ApiKey.FETCH: 11},
        changes={ApiKey.METADATA: _with_epoch_of_long_ago},
    ),
    Quirk(
        "no-fetch-sessions",
        "responds to each Fetch without a session (KIP-227)",
        "redpanda-data/redpanda#25, robot-head/crabka#208",
        changes={ApiKey.FETCH: _without_session},
    ),
    Quirk(
        "any-node-serves",
        "has no leaders and coordinators: each node names itself for everything",
        "docs.warpstream.com: Life of a Request (Simplified)",
        any_node_serves=True,
    ),
    Quirk(
        "no-controller",
        "names no controller",
        "streamnative/kop#242, apache/kafka#16968 (KAFKA-17404)",
        changes={
            ApiKey.METADATA: _without_controller,
            ApiKey.DESCRIBE_CLUSTER: _without_controller,
        },
    ),
    Quirk(
        "no-idempotence",
        "has no idempotent producers: InitProducerId is not announced",
        "docs.cloud.oracle.com: Kafka Compatibility, Unimplemented APIs",
        newest={ApiKey.INIT_PRODUCER_ID: ABSENT},
    ),
    Quirk(
        "no-transactions",
        "has idempotent producers, and no transactions",
        "docs.warpstream.com: Protocol and Feature Support; Azure/azure-event-hubs-for-kafka#209",
        newest=dict.fromkeys(_TRANSACTIONS, ABSENT),
    ),
    Quirk(
        "classic-groups-only",
        "has neither groups of KIP-848 nor share groups (KIP-932)",
        "docs.warpstream.com: Protocol and Feature Support",
        newest=dict.fromkeys(_NEW_GROUPS, ABSENT),
    ),
    Quirk(
        "throttles",
        "throttles clients in each response to Produce and Fetch (KIP-219)",
        "docs.aws.amazon.com: Amazon MSK quota (MSK Serverless: ingress and egress are throttled)",
        throttle_ms=100,
    ),
    Quirk(
        "few-connections",
        "closes connections beyond a limit per node",
        "docs.aws.amazon.com: Amazon MSK quota (TCP connections per broker)",
        most_connections=4,
    ),
    Quirk(
        "drops-idle-connections",
        "forgets a connection that was idle for four minutes: the next request is reset",
        "learn.microsoft.com: Recommended configurations for Apache Kafka clients "
        "(connections.max.idle.ms)",
        idle_s=240.0,
    ),
    Quirk(
        "recycles-connections",
        "closes each connection from time to time, to balance the load between its nodes",
        "docs.cloud.oracle.com: Kafka Compatibility, Load Balancing Connection Recycling",
        lifetime_s=20.0,
    ),
    Quirk(
        "login-ends",
        "closes a connection when its session expires, without reauthentication (KIP-368)",
        "grepplabs/kafka-proxy#217, aio-libs/aiokafka#1105",
        newest={ApiKey.SASL_AUTHENTICATE: 0},
        lifetime_s=30.0,
    ),
    Quirk(
        "slow-acknowledgments",
        "acknowledges a batch after 250 to 500 ms, when the object store has it",
        "docs.warpstream.com: Write Path - Produce()",
        acknowledges_after_s=(0.25, 0.5),
    ),
    Quirk(
        "slow-topics",
        "has new topics without a leader for seconds",
        "redpanda-data/redpanda#7162, twmb/franz-go#114",
        topic_is_ready_after_s=3.0,
    ),
    Quirk(
        "no-compression",
        "rejects compressed batches",
        "docs.waterstream.cloud: Alternatives to Kafka (Azure Event Hubs); the error is KIP-110's",
        codecs=frozenset({Codec.NONE}),
    ),
    Quirk(
        "small-requests",
        "resets the connection if a request has more than 1,046,528 bytes",
        "learn.microsoft.com: Recommended configurations for Apache Kafka clients "
        "(max.request.size)",
        most_request_bytes=1_046_528,
    ),
    Quirk(
        "hidden-nodes",
        "has a load balancer as the bootstrap address, and nodes with other host names",
        "vuink.com: Hacking the Kafka Protocol (WarpStream); grepplabs/kafka-proxy",
        advertised_host="localhost",
        has_balancer=True,
    ),
)
#: By name.
QUIRKS: Mapping[str, Quirk] = {quirk.name: quirk for quirk in _QUIRKS}
#: Known quirks of each service; a service may behave differently today.
SERVICES: Mapping[str, tuple[str, ...]] = {
    "event-hubs": (
        "resets-api-versions-4",
        "event-hubs-versions",
        "no-transactions",
        "classic-groups-only",
        "drops-idle-connections",
        "no-compression",
        "small-requests",
        "hidden-nodes",
    ),
    "msk-serverless": ("throttles", "few-connections", "classic-groups-only"),
    "oci-streaming": (
        "no-idempotence",
        "no-transactions",
        "classic-groups-only",
        "recycles-connections",
    ),
    "redpanda-21": ("no-leader-epochs", "no-fetch-sessions", "classic-groups-only"),
    "tansu": ("closes-on-route", "classic-groups-only"),
    "warpstream": (
        "any-node-serves",
        "slow-acknowledgments",
        "no-transactions",
        "classic-groups-only",
        "hidden-nodes",
    ),
}


def find(imitate: str | Iterable[str]) -> tuple[Quirk, ...]:
    """Return the quirks with a name, or those of the service with that name; several names may be
    given.

    Raises:
        ConfigError: if a name is unknown.
    """
    names = [imitate] if isinstance(imitate, str) else list(imitate)
    unknown = [name for name in names if name not in SERVICES and name not in QUIRKS]
    if unknown:
        raise ConfigError(
            f"imitate={unknown[0]!r}: must be a service ({', '.join(SERVICES)}) or a quirk "
            f"({', '.join(QUIRKS)})"
        )
    found = dict.fromkeys(each for name in names for each in SERVICES.get(name, (name,)))
    return tuple(QUIRKS[name] for name in found)
