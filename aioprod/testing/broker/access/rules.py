"""The permissions that each API requires, as in Kafka. If the cluster has an authorizer, a request
of an API that is not in the table ends the connection.
"""

from __future__ import annotations

from typing import Any

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing.broker.access.client_access import (
    REFUSALS,
    ApiRule,
    Check,
    CheckWhole,
    ClientAccess,
)

_CLUSTER, _TOPIC, _GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
_CREATE, _DELETE, _ALTER = AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER
_DESCRIBE = AclOperation.DESCRIBE
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

_ATTRIBUTES_AT, _TRANSACTIONAL = 22, 0x10  # in a batch: the second byte of its attributes
_SHARE_COORDINATOR = 2


# -- parts of rules --------------------------------------------------------------------------------


def _whole(operation: AclOperation, kind: ResourceType, field: str | None = None) -> CheckWhole:
    """Require a permission on the resource that a field names, or on the cluster if there is no
    field.
    """

    def check(access: ClientAccess, request: Any) -> ErrorCode:
        name = CLUSTER_NAME if field is None else getattr(request, field) or ""
        return ErrorCode.NONE if access.allows(operation, kind, name) else REFUSALS[kind]

    return check


def _all_of(*checks: CheckWhole) -> CheckWhole:
    """Run several checks in order."""

    def check(access: ClientAccess, request: Any) -> ErrorCode:
        codes = (each(access, request) for each in checks)
        return next((code for code in codes if code), ErrorCode.NONE)

    return check


def _each(operation: AclOperation, kind: ResourceType) -> Check:
    return lambda access, request, name: access.allows(operation, kind, name)


def _topics(operation: AclOperation) -> dict[ResourceType, Check]:
    return {_TOPIC: _each(operation, _TOPIC)}


def _topics_or_cluster(operation: AclOperation, on_cluster: AclOperation) -> ApiRule:
    """Require a permission on each topic, or one on the cluster."""
    return ApiRule(
        each={
            _TOPIC: lambda access, request, name: (
                access.allows(on_cluster, _CLUSTER) or access.allows(operation, _TOPIC, name)
            )
        }
    )


def _configs(operation: AclOperation) -> ApiRule:
    return ApiRule(each={kind: _each(operation, kind) for kind in (_TOPIC, _GROUP, _CLUSTER)})


# -- rules of single APIs --------------------------------------------------------------------------


def _produce(access: ClientAccess, request: Any) -> ErrorCode:
    """Require WRITE on the transactional id if the request has a transactional batch."""
    is_transactional = any(
        data.records
        and len(data.records) > _ATTRIBUTES_AT
        and data.records[_ATTRIBUTES_AT] & _TRANSACTIONAL
        for topic in request.topic_data
        for data in topic.partition_data
    )
    name = request.transactional_id
    if not is_transactional or (
        name is not None and access.allows(_WRITE, _TRANSACTIONAL_ID, name)
    ):
        return ErrorCode.NONE
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _fetch(access: ClientAccess, request: Any, topic: str) -> bool:
    """Require a permission on the cluster instead if a follower fetches."""
    if max(request.replica_id, request.replica_state.replica_id) >= 0:
        return access.allows(_CLUSTER_ACTION, _CLUSTER)
    return access.allows(_READ, _TOPIC, topic)


def _init_producer_id(access: ClientAccess, request: Any) -> ErrorCode:
    """Require WRITE on at least one topic, or a permission on the cluster, for an idempotent
    producer (KIP-679).
    """
    if request.transactional_id is not None:
        return _TRANSACTION(access, request)
    if access.allows(AclOperation.IDEMPOTENT_WRITE, _CLUSTER) or access.allows_any(_WRITE, _TOPIC):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _add_partitions(access: ClientAccess, request: Any) -> ErrorCode:
    if request.transactions:
        return _whole(_CLUSTER_ACTION, _CLUSTER)(access, request)
    return _whole(_WRITE, _TRANSACTIONAL_ID, "v3_and_below_transactional_id")(access, request)


def _add_partition(access: ClientAccess, request: Any, topic: str) -> bool:
    return bool(request.transactions) or access.allows(_WRITE, _TOPIC, topic)


def _find_coordinator(access: ClientAccess, request: Any) -> ErrorCode:
    if request.key_type == _SHARE_COORDINATOR:
        return _whole(_CLUSTER_ACTION, _CLUSTER)(access, request)
    return ErrorCode.NONE


def _subscribed(access: ClientAccess, request: Any) -> ErrorCode:
    """Require DESCRIBE on all topics that a member subscribes to by name (KIP-848, KIP-932)."""
    if all(access.allows(_DESCRIBE, _TOPIC, name) for name in request.subscribed_topic_names or ()):
        return ErrorCode.NONE
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


_OPEN = ApiRule()  # no right is required, or the handler filters its response
_MEMBER = _whole(_READ, _GROUP, "group_id")
_TRANSACTION = _whole(_WRITE, _TRANSACTIONAL_ID, "transactional_id")
_DESCRIBE_CLUSTER = ApiRule(_whole(_DESCRIBE, _CLUSTER))
_ALTER_CLUSTER = ApiRule(_whole(_ALTER, _CLUSTER))
_DESCRIBED_GROUPS = {_GROUP: _each(_DESCRIBE, _GROUP)}

RULES: dict[ApiKey, ApiRule] = {
    ApiKey.PRODUCE: ApiRule(_produce, _topics(_WRITE)),
    ApiKey.FETCH: ApiRule(each={_TOPIC: _fetch}),
    ApiKey.LIST_OFFSETS: ApiRule(each=_topics(_DESCRIBE)),
    ApiKey.METADATA: ApiRule(each=_topics(_DESCRIBE)),  # and CREATE, which the handler checks
    ApiKey.OFFSET_COMMIT: ApiRule(_MEMBER, _topics(_READ)),
    ApiKey.OFFSET_FETCH: ApiRule(each=_DESCRIBED_GROUPS | _topics(_DESCRIBE)),
    ApiKey.FIND_COORDINATOR: ApiRule(
        _find_coordinator,
        _DESCRIBED_GROUPS | {_TRANSACTIONAL_ID: _each(_DESCRIBE, _TRANSACTIONAL_ID)},
    ),
    ApiKey.JOIN_GROUP: ApiRule(_MEMBER),
    ApiKey.HEARTBEAT: ApiRule(_MEMBER),
    ApiKey.LEAVE_GROUP: ApiRule(_MEMBER),
    ApiKey.SYNC_GROUP: ApiRule(_MEMBER),
    ApiKey.DESCRIBE_GROUPS: ApiRule(each=_DESCRIBED_GROUPS),
    ApiKey.LIST_GROUPS: _OPEN,
    ApiKey.SASL_HANDSHAKE: _OPEN,
    ApiKey.API_VERSIONS: _OPEN,
    ApiKey.CREATE_TOPICS: _topics_or_cluster(_CREATE, on_cluster=_CREATE),
    ApiKey.DELETE_TOPICS: _topics_or_cluster(_DELETE, on_cluster=_DELETE),
    ApiKey.DELETE_RECORDS: ApiRule(each=_topics(_DELETE)),
    ApiKey.INIT_PRODUCER_ID: ApiRule(_init_producer_id),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _topics_or_cluster(_DESCRIBE, on_cluster=_CLUSTER_ACTION),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiRule(_add_partitions, {_TOPIC: _add_partition}),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiRule(_all_of(_TRANSACTION, _MEMBER)),
    ApiKey.END_TXN: ApiRule(_TRANSACTION),
    ApiKey.TXN_OFFSET_COMMIT: ApiRule(_all_of(_TRANSACTION, _MEMBER), _topics(_READ)),
    ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
    ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
    ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS: _configs(_DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: _configs(_ALTER_CONFIGS),
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE_CLUSTER,
    ApiKey.SASL_AUTHENTICATE: _OPEN,
    ApiKey.CREATE_PARTITIONS: ApiRule(each=_topics(_ALTER)),
    # This broker issues no delegation tokens.
    ApiKey.CREATE_DELEGATION_TOKEN: _OPEN,
    ApiKey.RENEW_DELEGATION_TOKEN: _OPEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _OPEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _OPEN,
    ApiKey.DELETE_GROUPS: ApiRule(each={_GROUP: _each(_DELETE, _GROUP)}),
    ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(_ALTER_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
    ApiKey.OFFSET_DELETE: ApiRule(_whole(_DELETE, _GROUP, "group_id"), _topics(_READ)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiRule(_whole(_DESCRIBE_CONFIGS, _CLUSTER)),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiRule(_whole(_ALTER_CONFIGS, _CLUSTER)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE_CLUSTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_CLUSTER: _OPEN,
    ApiKey.DESCRIBE_PRODUCERS: ApiRule(each=_topics(_READ)),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiRule(
        each={_TRANSACTIONAL_ID: _each(_DESCRIBE, _TRANSACTIONAL_ID)}
    ),
    ApiKey.LIST_TRANSACTIONS: _OPEN,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiRule(_all_of(_MEMBER, _subscribed)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiRule(each=_DESCRIBED_GROUPS | _topics(_DESCRIBE)),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _OPEN,
    ApiKey.PUSH_TELEMETRY: _OPEN,
    ApiKey.LIST_CONFIG_RESOURCES: ApiRule(_whole(_DESCRIBE_CONFIGS, _CLUSTER)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiRule(each=_topics(_DESCRIBE)),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiRule(_all_of(_MEMBER, _subscribed)),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiRule(each=_DESCRIBED_GROUPS | _topics(_DESCRIBE)),
    ApiKey.SHARE_FETCH: ApiRule(_MEMBER, _topics(_READ)),
    ApiKey.SHARE_ACKNOWLEDGE: ApiRule(_MEMBER, _topics(_READ)),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiRule(each=_DESCRIBED_GROUPS | _topics(_DESCRIBE)),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiRule(_MEMBER, _topics(_READ)),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiRule(_whole(_DELETE, _GROUP, "group_id"), _topics(_READ)),
}
