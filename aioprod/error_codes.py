"""The error codes of the Kafka protocol, as of Kafka 4.1, with what a client should do about
each.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

_RETRY = 1
_STALE = 3  # worth a retry, and metadata should be fetched again before it


class ErrorCode(IntEnum):
    """A number that a broker answers with; ``NONE`` (0) is success.

    Attributes:
        description: a short sentence for people.
        retriable: the same request may succeed later without any change by the user.
        refresh_metadata: the client's picture of the cluster is out of date; all of these are
            retriable too.
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
        """The member for ``code``; a number that this version does not know gives
        ``UNKNOWN_SERVER_ERROR``.
        """
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    UNKNOWN_SERVER_ERROR = -1, "the broker failed in a way it has no code for"
    NONE = 0, "success"
    OFFSET_OUT_OF_RANGE = 1, "the offset lies outside what the partition holds"
    CORRUPT_MESSAGE = (
        2,
        "a record failed its checksum, its size limit or the rule that compacted topics need keys",
        _RETRY,
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, "the broker does not know this topic or partition", _STALE
    INVALID_FETCH_SIZE = 4, "the fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader at the moment", _STALE
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "the broker is not, or no longer, the leader or a replica of this partition",
        _STALE,
    )
    REQUEST_TIMED_OUT = 7, "the broker could not finish the request within its time limit", _RETRY
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica of this partition is not available", _STALE
    MESSAGE_TOO_LARGE = (
        10,
        "the record batch is larger than the broker or topic accepts (max.message.bytes)",
    )
    STALE_CONTROLLER_EPOCH = 11, "the controller has moved to another node"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata string of an offset commit is too long"
    NETWORK_EXCEPTION = 13, "the connection broke before a reply arrived", _STALE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is still loading its state", _RETRY
    COORDINATOR_NOT_AVAILABLE = 15, "there is no coordinator at the moment", _RETRY
    NOT_COORDINATOR = 16, "the broker is not the coordinator for this group or transaction", _RETRY
    INVALID_TOPIC_EXCEPTION = (
        17,
        "the topic name is illegal, or the topic is not open to this operation",
    )
    RECORD_LIST_TOO_LARGE = 18, "the record batch is larger than a log segment of the broker"
    NOT_ENOUGH_REPLICAS = (
        19,
        "fewer replicas are in sync than min.insync.replicas asks for; nothing was written",
        _RETRY,
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "the records were written, but to fewer in-sync replicas than min.insync.replicas",
        _RETRY,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1 (all)"
    ILLEGAL_GENERATION = 22, "the group's generation id is out of date"
    INCONSISTENT_GROUP_PROTOCOL = 23, "the member shares no assignment protocol with the group"
    INVALID_GROUP_ID = 24, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, "the coordinator does not know this group member"
    INVALID_SESSION_TIMEOUT = (
        26,
        "the session timeout is outside the broker's limits (group.min/max.session.timeout.ms)",
    )
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing; the member has to join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the offset commit is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, "the principal may not do this with the topic"
    GROUP_AUTHORIZATION_FAILED = 30, "the principal may not do this with the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "the principal may not do this with the cluster"
    INVALID_TIMESTAMP = 32, "the record's timestamp is outside the range that the topic accepts"
    UNSUPPORTED_SASL_MECHANISM = 33, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, "the request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, "the broker does not support this version of the request"
    TOPIC_ALREADY_EXISTS = 36, "a topic of this name exists already"
    INVALID_PARTITIONS = 37, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = (
        38,
        "the replication factor is below 1 or above the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, "the assignment of replicas is not valid"
    INVALID_CONFIG = 40, "a setting is unknown to the broker or has a bad value"
    NOT_CONTROLLER = 41, "the node is not the active controller", _RETRY
    INVALID_REQUEST = (
        42,
        "the broker finds the request malformed or contradictory; its log says more",
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the broker's record format is too old for this request"
    POLICY_VIOLATION = 44, "a policy set up on the broker forbids the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        "the batch's sequence number does not follow the last one the broker has seen",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, "the broker has this sequence number already"
    INVALID_PRODUCER_EPOCH = 47, "the producer epoch is out of date"
    INVALID_TXN_STATE = 48, "the transaction is not in a state that allows this"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        "the transaction timeout is above the broker's transaction.max.timeout.ms",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        "another operation on the same transaction is still under way",
        _RETRY,
    )
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        "the transaction coordinator that sent the marker has been replaced",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "the principal may not use this transactional id"
    SECURITY_DISABLED = 54, "the broker has no authorizer set up"
    OPERATION_NOT_ATTEMPTED = (
        55,
        "the broker skipped this part of the request because another part failed",
    )
    KAFKA_STORAGE_ERROR = 56, "the broker's disk failed", _STALE
    LOG_DIR_NOT_FOUND = 57, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, "the broker refused the credentials"
    UNKNOWN_PRODUCER_ID = (
        59,
        "the broker holds no state for this producer id, perhaps because its records have expired",
    )
    REASSIGNMENT_IN_PROGRESS = 60, "replicas of the partition are being moved"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "the broker has delegation tokens turned off"
    DELEGATION_TOKEN_NOT_FOUND = 62, "the broker has no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        "the principal neither owns the delegation token nor may renew it",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "delegation tokens can't be asked for on this kind of connection",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (
        65,
        "the principal may not do this with the delegation token",
    )
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "the broker does not support this type of principal"
    NON_EMPTY_GROUP = 68, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, "the broker no longer has this fetch session", _RETRY
    INVALID_FETCH_SESSION_EPOCH = 71, "the fetch session's epoch is not the one expected", _RETRY
    LISTENER_NOT_FOUND = (
        72,
        "the leader has no listener of the name that the request came in by",
        _STALE,
    )
    TOPIC_DELETION_DISABLED = 73, "the broker has deletion of topics turned off"
    FENCED_LEADER_EPOCH = 74, "the request's leader epoch is older than the broker's", _STALE
    UNKNOWN_LEADER_EPOCH = 75, "the request's leader epoch is newer than the broker's", _RETRY
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        "this version of the request can't carry the partition's compression",
    )
    STALE_BROKER_EPOCH = 77, "the broker's epoch has changed"
    OFFSET_NOT_AVAILABLE = 78, "a new leader has not yet caught up with the high watermark", _RETRY
    MEMBER_ID_REQUIRED = 79, "the member must join again with the id that the coordinator gave it"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available", _STALE
    GROUP_MAX_SIZE_REACHED = 81, "the group is full (group.max.size)"
    FENCED_INSTANCE_ID = 82, "another consumer has taken over this group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (
        83,
        "no replica that could lead the partition is available",
        _STALE,
    )
    ELECTION_NOT_NEEDED = 84, "the partition has the wanted leader already", _STALE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "no replicas of the partition are being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86,
        "offsets can't be deleted while the group is subscribed to the topic",
    )
    INVALID_RECORD = 87, "the broker's checks refused a record"
    UNSTABLE_OFFSET_COMMIT = 88, "offsets of an open transaction are not decided yet", _RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, "a quota is used up for now", _RETRY
    PRODUCER_FENCED = 90, "a newer producer with the same transactional id has taken over"
    RESOURCE_NOT_FOUND = 91, "a resource named in the request does not exist"
    DUPLICATE_RESOURCE = 92, "the request names a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential does not meet the broker's rules"
    INCONSISTENT_VOTER_SET = 94, "sender or receiver is not among the expected voters"
    INVALID_UPDATE_VERSION = 95, "the version to update to is not valid"
    FEATURE_UPDATE_FAILED = 96, "the cluster could not update its finalized features"
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        "the controller could not read the forwarded principal; broker security is misconfigured",
    )
    SNAPSHOT_NOT_FOUND = 98, "there is no such metadata snapshot"
    POSITION_OUT_OF_RANGE = 99, "the position lies outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, "the broker does not know this topic id", _STALE
    DUPLICATE_BROKER_REGISTRATION = 101, "this broker id is taken"
    BROKER_ID_NOT_REGISTERED = 102, "this broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, "the topic id is not the one the log was made with", _STALE
    INCONSISTENT_CLUSTER_ID = 104, "the broker belongs to another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        "topic ids were used in only a part of the fetch session",
        _RETRY,
    )
    INELIGIBLE_REPLICA = 107, "a replica can't join the in-sync set"
    NEW_LEADER_ELECTED = 108, "the partition was altered, and its leader changed with it"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "the offset has moved to tiered storage"
    FENCED_MEMBER_EPOCH = (
        110,
        "the member's epoch is fenced; it must give up its partitions and join again",
    )
    UNRELEASED_INSTANCE_ID = 111, "another member still holds this instance id"
    UNSUPPORTED_ASSIGNOR = 112, "the group does not support this assignor"
    STALE_MEMBER_EPOCH = (
        113,
        "the member's epoch is out of date; the next heartbeat brings the new one",
    )
    MISMATCHED_ENDPOINT_TYPE = (
        114,
        "the request was meant for another type of endpoint (broker or controller)",
    )
    UNSUPPORTED_ENDPOINT_TYPE = 115, "this type of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, "there is no controller of this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, "the telemetry subscription is out of date"
    TELEMETRY_TOO_LARGE = 118, "the telemetry is larger than the broker accepts"
    INVALID_REGISTRATION = 119, "the controller refuses the broker's registration"
    TRANSACTION_ABORTABLE = (
        120,
        "the transaction failed; after an abort the transactional id can be used again",
    )
    INVALID_RECORD_STATE = 121, "the record is not in a state in which it can be acknowledged"
    SHARE_SESSION_NOT_FOUND = 122, "the broker no longer has this share session", _RETRY
    INVALID_SHARE_SESSION_EPOCH = 123, "the share session's epoch is not the one expected", _RETRY
    FENCED_STATE_EPOCH = 124, "the share group's state epoch does not match"
    INVALID_VOTER_KEY = 125, "the voter's key does not match the receiver's"
    DUPLICATE_VOTER = 126, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = (
        129,
        (
            "the client's metadata is of no use any more; it must start again from its bootstrap "
            "servers"
        ),
    )
    STREAMS_INVALID_TOPOLOGY = 130, "the streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "the streams topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, "the streams topology's epoch is out of date"
    SHARE_SESSION_LIMIT_REACHED = 133, "the broker has as many share sessions as it allows", _RETRY


_BY_CODE = {int(code): code for code in ErrorCode}

#: A coordinator's codes for: look for another one.
COORDINATOR_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
