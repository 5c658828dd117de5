"""The error codes of the Kafka protocol, as of Kafka 4.1, and which of them a client retries."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

_RETRY = 1
_STALE = 3  # retry after a refresh of the metadata


class ErrorCode(IntEnum):
    """An error code in a response; ``NONE`` (0) is success.

    Attributes:
        description: the cause, and the cure if the client can't handle it.
        retriable: whether the same request may succeed later.
        refresh_metadata: whether the metadata of the client is old; such codes are retriable.
    """

    description: str
    retriable: bool
    refresh_metadata: bool

    def __new__(cls, code: int, description: str = "", traits: int = 0) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.description = description
        member.retriable = traits & _RETRY != 0
        member.refresh_metadata = traits == _STALE
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the member for a number, or ``UNKNOWN_SERVER_ERROR`` if the number is unknown."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    UNKNOWN_SERVER_ERROR = -1, "the broker failed unexpectedly; see its log"
    NONE = 0, "success"
    OFFSET_OUT_OF_RANGE = 1, "the offset is outside the range of the partition"
    CORRUPT_MESSAGE = (
        2,
        "a record has a wrong checksum or size, or no key in a compacted topic",
        _RETRY,
    )
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        "the topic or partition does not exist; create it, or check its name",
        _STALE,
    )
    INVALID_FETCH_SIZE = 4, "the requested fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader; wait for an election", _STALE
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "the broker is not a leader or replica of the partition",
        _STALE,
    )
    REQUEST_TIMED_OUT = 7, "the broker did not complete the request within its timeout", _RETRY
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica of the partition is not available", _STALE
    MESSAGE_TOO_LARGE = (
        10,
        "the record batch is too large; raise max.message.bytes of the topic, or send less",
    )
    STALE_CONTROLLER_EPOCH = 11, "the request is from an earlier controller"
    OFFSET_METADATA_TOO_LARGE = (
        12,
        "the metadata of a committed offset is too long; limit: offset.metadata.max.bytes",
    )
    NETWORK_EXCEPTION = 13, "the connection was lost before the response", _STALE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is loading its state", _RETRY
    COORDINATOR_NOT_AVAILABLE = 15, "no coordinator is available", _RETRY
    NOT_COORDINATOR = 16, "the broker is not the coordinator of this group or transaction", _RETRY
    INVALID_TOPIC_EXCEPTION = (
        17,
        "the topic name is invalid, or the topic is internal to Kafka",
    )
    RECORD_LIST_TOO_LARGE = (
        18,
        "the record batch is larger than a log segment; reduce batch_size, or raise segment.bytes",
    )
    NOT_ENOUGH_REPLICAS = (
        19,
        "fewer replicas are in sync than min.insync.replicas; the records were not written",
        _RETRY,
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "the records were written to fewer in-sync replicas than min.insync.replicas",
        _RETRY,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1 (all)"
    ILLEGAL_GENERATION = 22, "the generation id is not the current one; join the group again"
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        "the member and the group have no assignment strategy in common",
    )
    INVALID_GROUP_ID = 24, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, "the member is not in the group; join again"
    INVALID_SESSION_TIMEOUT = (
        26,
        "session_timeout_ms is outside the broker's group.min/max.session.timeout.ms",
    )
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing; join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the offset commit is too large"
    TOPIC_AUTHORIZATION_FAILED = (
        29,
        "not authorized for this operation on the topic; grant it to the client's principal",
    )
    GROUP_AUTHORIZATION_FAILED = (
        30,
        "not authorized for this operation on the group; grant it to the client's principal",
    )
    CLUSTER_AUTHORIZATION_FAILED = (
        31,
        "not authorized for this operation on the cluster; grant it to the client's principal",
    )
    INVALID_TIMESTAMP = (
        32,
        "the timestamp is outside the range that the topic accepts; see message.timestamp.*.max.ms",
    )
    UNSUPPORTED_SASL_MECHANISM = (
        33,
        "the broker does not support this SASL mechanism; set another sasl_mechanism",
    )
    ILLEGAL_SASL_STATE = 34, "the request is not valid in the current SASL state"
    UNSUPPORTED_VERSION = 35, "the broker does not support this version of the request"
    TOPIC_ALREADY_EXISTS = 36, "a topic with this name already exists"
    INVALID_PARTITIONS = 37, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = (
        38,
        "the replication factor is below 1, or larger than the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, "the replica assignment is invalid"
    INVALID_CONFIG = 40, "a setting is unknown, or its value is invalid"
    NOT_CONTROLLER = 41, "the node is not the active controller", _RETRY
    INVALID_REQUEST = (
        42,
        "the request is malformed or inconsistent; see the broker's log",
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        "the topic's message.format.version is too old: idempotence needs 0.11, offsets by time "
        "0.10",
    )
    POLICY_VIOLATION = 44, "the request violates a policy of the broker"
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        "the sequence number of the batch does not follow the last one of the partition",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, "the broker already has a batch with this sequence number"
    INVALID_PRODUCER_EPOCH = (
        47,
        "the producer epoch is old; a newer producer may have fenced this one",
    )
    INVALID_TXN_STATE = 48, "the operation is not valid in the current state of the transaction"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id does not match the transactional id"
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        "transaction_timeout_ms is larger than the broker's transaction.max.timeout.ms",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        "another operation on the same transaction is in progress",
        _RETRY,
    )
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        "the transaction coordinator was replaced by another one",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        "not authorized to use this transactional id; grant WRITE on it to the client's principal",
    )
    SECURITY_DISABLED = 54, "the broker has no authorizer configured"
    OPERATION_NOT_ATTEMPTED = (
        55,
        "the broker did not attempt this operation, because another part of the request failed",
    )
    KAFKA_STORAGE_ERROR = 56, "a disk of the broker failed", _STALE
    LOG_DIR_NOT_FOUND = 57, "the log directory does not exist on the broker"
    SASL_AUTHENTICATION_FAILED = 58, "the broker rejected the credentials"
    UNKNOWN_PRODUCER_ID = (
        59,
        "the broker has no state of this producer id, maybe because its records were deleted",
    )
    REASSIGNMENT_IN_PROGRESS = 60, "a reassignment of the partition is in progress"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "delegation tokens are disabled on the broker"
    DELEGATION_TOKEN_NOT_FOUND = 62, "the delegation token does not exist"
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        "the principal is neither the owner nor a renewer of the delegation token",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "delegation tokens can't be requested over this connection; use SASL or mutual TLS",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (
        65,
        "not authorized for this operation on the delegation token",
    )
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "the type of the principal is not supported"
    NON_EMPTY_GROUP = 68, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, "the fetch session does not exist any more", _RETRY
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        "the epoch of the fetch session is not the expected one",
        _RETRY,
    )
    LISTENER_NOT_FOUND = (
        72,
        "the leader has no listener with the name of the one that received the request",
        _STALE,
    )
    TOPIC_DELETION_DISABLED = (
        73,
        "deletion of topics is disabled; set delete.topic.enable on the brokers",
    )
    FENCED_LEADER_EPOCH = 74, "the leader epoch of the request is older than the broker's", _STALE
    UNKNOWN_LEADER_EPOCH = 75, "the leader epoch of the request is newer than the broker's", _RETRY
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        "the version of the request does not support the compression of the partition",
    )
    STALE_BROKER_EPOCH = 77, "the broker epoch has changed"
    OFFSET_NOT_AVAILABLE = (
        78,
        "the offset is not available until the new leader knows the high watermark",
        _RETRY,
    )
    MEMBER_ID_REQUIRED = 79, "join again with the member id of this response"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available", _STALE
    GROUP_MAX_SIZE_REACHED = 81, "the group has group.max.size members"
    FENCED_INSTANCE_ID = (
        82,
        "another consumer with the same group_instance_id has joined; use a different id",
    )
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (
        83,
        "no eligible leader of the partition is available",
        _STALE,
    )
    ELECTION_NOT_NEEDED = 84, "the partition already has the requested leader", _STALE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "no reassignment of the partition is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86,
        "offsets of a topic can't be deleted while the group is subscribed to it",
    )
    INVALID_RECORD = 87, "the broker rejected a record as invalid"
    UNSTABLE_OFFSET_COMMIT = (
        88,
        "a transaction with these offsets is open; wait until it ends",
        _RETRY,
    )
    THROTTLING_QUOTA_EXCEEDED = 89, "a quota is exceeded; retry later", _RETRY
    PRODUCER_FENCED = (
        90,
        "a newer producer with the same transactional_id has started; close this one",
    )
    RESOURCE_NOT_FOUND = 91, "a resource in the request does not exist"
    DUPLICATE_RESOURCE = 92, "the request contains a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential does not meet the requirements of the broker"
    INCONSISTENT_VOTER_SET = 94, "the sender or receiver is not one of the expected voters"
    INVALID_UPDATE_VERSION = 95, "the version of the update is invalid"
    FEATURE_UPDATE_FAILED = 96, "the finalized features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        "the controller can't decode a forwarded principal; check the brokers' principal builder",
    )
    SNAPSHOT_NOT_FOUND = 98, "the metadata snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, "the topic id does not exist on the broker", _STALE
    DUPLICATE_BROKER_REGISTRATION = 101, "another broker is registered with this id"
    BROKER_ID_NOT_REGISTERED = 102, "the broker id is not registered"
    INCONSISTENT_TOPIC_ID = (
        103,
        "the topic id does not match that of the log; the topic may have been created again",
        _STALE,
    )
    INCONSISTENT_CLUSTER_ID = 104, "the broker belongs to another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "the transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        "the fetch session uses topic ids in some requests only",
        _RETRY,
    )
    INELIGIBLE_REPLICA = 107, "the replica can't join the in-sync replicas"
    NEW_LEADER_ELECTED = 108, "the change of the partition elected a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "the offset is in tiered storage"
    FENCED_MEMBER_EPOCH = (
        110,
        "the member epoch is fenced; release all partitions and join again",
    )
    UNRELEASED_INSTANCE_ID = (
        111,
        "another member has this group_instance_id; wait until it has left",
    )
    UNSUPPORTED_ASSIGNOR = (
        112,
        "the group does not support this assignor; see group_remote_assignor",
    )
    STALE_MEMBER_EPOCH = (
        113,
        "the member epoch is old; the next heartbeat returns the new one",
    )
    MISMATCHED_ENDPOINT_TYPE = (
        114,
        "the request is for the other type of endpoint (broker or controller)",
    )
    UNSUPPORTED_ENDPOINT_TYPE = 115, "the type of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, "the controller id does not exist"
    UNKNOWN_SUBSCRIPTION_ID = 117, "the id of the telemetry subscription is unknown"
    TELEMETRY_TOO_LARGE = 118, "the telemetry is too large for the broker"
    INVALID_REGISTRATION = 119, "the controller rejected the registration of the broker"
    TRANSACTION_ABORTABLE = (
        120,
        "the transaction failed; abort it, then begin another one",
    )
    INVALID_RECORD_STATE = 121, "the state of the record does not allow this acknowledgment"
    SHARE_SESSION_NOT_FOUND = 122, "the share session does not exist any more", _RETRY
    INVALID_SHARE_SESSION_EPOCH = (
        123,
        "the epoch of the share session is not the expected one",
        _RETRY,
    )
    FENCED_STATE_EPOCH = 124, "the state epoch of the share group is old"
    INVALID_VOTER_KEY = 125, "the key of the voter does not match that of the receiver"
    DUPLICATE_VOTER = 126, "the voter is already in the set"
    VOTER_NOT_FOUND = 127, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = (
        128,
        "the regular expression is invalid; the broker uses RE2's syntax",
    )
    REBOOTSTRAP_REQUIRED = (
        129,
        "the client's metadata is obsolete; it must connect to its bootstrap servers again",
    )
    STREAMS_INVALID_TOPOLOGY = 130, "the streams topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "the epoch of the streams topology is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, "the epoch of the streams topology is old"
    SHARE_SESSION_LIMIT_REACHED = 133, "the broker has reached its limit of share sessions", _RETRY


_BY_CODE = {int(code): code for code in ErrorCode}

#: The codes after which a client looks for another coordinator.
COORDINATOR_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
