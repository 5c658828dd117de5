"""Advice for authorization errors: the operation to grant, and the principal."""

from __future__ import annotations

import ssl
from typing import TypeVar

from aioprod.config.client import ClientConfig
from aioprod.config.settings.security import PASSWORD_MECHANISMS
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError
from aioprod.protocol.certificates import subject_of

E = TypeVar("E", bound=BrokerError)

UNNAMED = "the client's principal"
_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_TOKEN = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
_RESOURCES = {
    _TOPIC: "topic",
    _GROUP: "group",
    _CLUSTER: "cluster",
    _ID: "transactional id",
    _TOKEN: "user",  # the owner of the token
}

_IN_GROUP = {_GROUP: "READ", _TOPIC: "READ"}
_NEW_MEMBER = {_GROUP: "READ", _TOPIC: "DESCRIBE"}
_ABOUT_GROUP = {_GROUP: "DESCRIBE", _TOPIC: "DESCRIBE"}
_TRANSACTION = {_ID: "WRITE", _TOPIC: "WRITE", _GROUP: "READ"}
_FIND = {_GROUP: "DESCRIBE", _ID: "DESCRIBE"}
# The operation that was refused, by request (or method of Admin) and error code.
OPERATIONS: dict[str, dict[ErrorCode, str]] = {
    "Produce": {_TOPIC: "WRITE", _ID: "WRITE", _CLUSTER: "IDEMPOTENT_WRITE"},
    "Fetch": {_TOPIC: "READ"},
    "Metadata": {_TOPIC: "DESCRIBE"},
    "ListOffsets": {_TOPIC: "DESCRIBE"},
    "OffsetForLeaderEpoch": {_TOPIC: "DESCRIBE"},
    "FindCoordinator": _FIND,
    "JoinGroup": _IN_GROUP,
    "SyncGroup": _IN_GROUP,
    "Heartbeat": _IN_GROUP,
    "OffsetCommit": _IN_GROUP,
    "OffsetFetch": _ABOUT_GROUP,
    "ConsumerGroupHeartbeat": _NEW_MEMBER,
    "ShareGroupHeartbeat": _NEW_MEMBER,
    "ShareFetch": _IN_GROUP,
    "ShareAcknowledge": _IN_GROUP,
    "InitProducerId": {_ID: "WRITE", _CLUSTER: "IDEMPOTENT_WRITE"},
    "AddPartitionsToTxn": _TRANSACTION,
    "AddOffsetsToTxn": _TRANSACTION,
    "TxnOffsetCommit": {_ID: "WRITE", _TOPIC: "READ", _GROUP: "READ"},
    "EndTxn": _TRANSACTION,
    "create_acls": {_CLUSTER: "ALTER"},
    "describe_acls": {_CLUSTER: "DESCRIBE"},
    "delete_acls": {_CLUSTER: "ALTER"},
    "create_delegation_token": {_TOKEN: "CREATE_TOKENS"},
    "find_coordinator": _FIND,
    "describe_log_dirs": {_CLUSTER: "DESCRIBE"},
    "describe_configs": dict.fromkeys((_TOPIC, _GROUP, _CLUSTER), "DESCRIBE_CONFIGS"),
    "incremental_alter_configs": dict.fromkeys((_TOPIC, _GROUP, _CLUSTER), "ALTER_CONFIGS"),
    "describe_consumer_groups": _ABOUT_GROUP,
    "delete_consumer_groups": {_GROUP: "DELETE"},
    "remove_members_from_consumer_group": {_GROUP: "READ"},
    "list_consumer_group_offsets": _ABOUT_GROUP,
    "alter_consumer_group_offsets": _IN_GROUP,
    "delete_consumer_group_offsets": {_GROUP: "DELETE", _TOPIC: "READ"},
    "list_offsets": {_TOPIC: "DESCRIBE"},
    "describe_client_quotas": {_CLUSTER: "DESCRIBE_CONFIGS"},
    "alter_client_quotas": {_CLUSTER: "ALTER_CONFIGS"},
    "delete_records": {_TOPIC: "DELETE"},
    "describe_producers": {_TOPIC: "READ"},
    "elect_leaders": {_CLUSTER: "ALTER"},
    "alter_partition_reassignments": {_CLUSTER: "ALTER"},
    "list_partition_reassignments": {_CLUSTER: "DESCRIBE"},
    "describe_share_groups": _ABOUT_GROUP,
    "list_share_group_offsets": _ABOUT_GROUP,
    "alter_share_group_offsets": _IN_GROUP,
    "delete_share_group_offsets": {_GROUP: "DELETE", _TOPIC: "READ"},
    "create_topics": {_TOPIC: "CREATE"},
    "delete_topics": {_TOPIC: "DELETE"},
    "create_partitions": {_TOPIC: "ALTER"},
    "describe_topics": {_TOPIC: "DESCRIBE"},
    "describe_transactions": {_ID: "DESCRIBE"},
    "fence_producers": {_ID: "WRITE"},
    "describe_user_scram_credentials": {_CLUSTER: "DESCRIBE"},
    "alter_user_scram_credentials": {_CLUSTER: "ALTER"},
}
# Operations that producers and consumers need anyway, and that imply the refused one.
_GRANTS = {
    ("Metadata", _TOPIC): "READ or WRITE, which include it,",
    ("FindCoordinator", _GROUP): "READ, which includes it,",
    ("FindCoordinator", _ID): "WRITE, which includes it,",
    ("OffsetFetch", _GROUP): "READ, which includes it,",
    ("OffsetFetch", _TOPIC): "READ, which includes it,",
    ("ListOffsets", _TOPIC): "READ, which includes it,",
}


def explain(error: E, request: str, principal: str) -> E:
    """Return the error. If it is an authorization error, add the operation and what to grant to its
    text, unless that has been done before.
    """
    operation = OPERATIONS.get(request, {}).get(error.code)
    if operation is None or error.is_explained:
        return error
    grant = _GRANTS.get((request, error.code), operation)
    kind = _RESOURCES[error.code]
    error.explain(f"not authorized for {operation} on the {kind}; grant {grant} to {principal}")
    return error


def principal_of(config: ClientConfig) -> str:
    """Return the principal of a client if its settings determine it: the user name, or the subject
    of its certificate.
    """
    if config.security_protocol.startswith("SASL_"):
        is_named = config.sasl_mechanism in PASSWORD_MECHANISMS and config.sasl_username
        return f"User:{config.sasl_username}" if is_named else UNNAMED
    if config.security_protocol != "SSL" or not config.ssl_keystore_location:
        return UNNAMED
    try:
        with open(config.ssl_keystore_location, encoding="ascii") as file:
            pem = file.read()
        start = pem.index("-----BEGIN CERTIFICATE-----")
        end = pem.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----")
        return f"User:{subject_of(ssl.PEM_cert_to_DER_cert(pem[start:end]))}"
    except (OSError, ValueError):
        return UNNAMED
