"""The API keys of Kafka 4.4, each with its first flexible version (KIP-482) and its highest
version.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

_NEVER = 32767
_REMOVED = -1


class ApiKey(IntEnum):
    """The API of a request, which is the first field of its header.

    Attributes:
        flexible_from: the first version with compact lengths and tagged fields in header and body;
            32767 if there is none.
        newest: the highest stable version of Kafka; -1 if Kafka 4 has removed the API. The
            generator refuses definitions with a higher version.
    """

    flexible_from: int
    newest: int

    def __new__(cls, key: int, flexible_from: int = _NEVER, newest: int = _REMOVED) -> Self:
        member = int.__new__(cls, key)
        member._value_ = key
        member.flexible_from = flexible_from
        member.newest = newest
        return member

    PRODUCE = 0, 9, 13
    FETCH = 1, 12, 18
    LIST_OFFSETS = 2, 6, 11
    METADATA = 3, 9, 13
    LEADER_AND_ISR = 4, 4, _REMOVED
    STOP_REPLICA = 5, 2, _REMOVED
    UPDATE_METADATA = 6, 6, _REMOVED
    CONTROLLED_SHUTDOWN = 7, 3, _REMOVED
    OFFSET_COMMIT = 8, 8, 10
    OFFSET_FETCH = 9, 6, 10
    FIND_COORDINATOR = 10, 3, 6
    JOIN_GROUP = 11, 6, 9
    HEARTBEAT = 12, 4, 4
    LEAVE_GROUP = 13, 4, 5
    SYNC_GROUP = 14, 4, 5
    DESCRIBE_GROUPS = 15, 5, 6
    LIST_GROUPS = 16, 3, 5
    SASL_HANDSHAKE = 17, _NEVER, 1
    API_VERSIONS = 18, 3, 5
    CREATE_TOPICS = 19, 5, 7
    DELETE_TOPICS = 20, 4, 6
    DELETE_RECORDS = 21, 2, 2
    INIT_PRODUCER_ID = 22, 2, 5
    OFFSET_FOR_LEADER_EPOCH = 23, 4, 4
    ADD_PARTITIONS_TO_TXN = 24, 3, 5
    ADD_OFFSETS_TO_TXN = 25, 3, 4
    END_TXN = 26, 3, 5
    WRITE_TXN_MARKERS = 27, 1, 2
    TXN_OFFSET_COMMIT = 28, 3, 6
    DESCRIBE_ACLS = 29, 2, 3
    CREATE_ACLS = 30, 2, 3
    DELETE_ACLS = 31, 2, 3
    DESCRIBE_CONFIGS = 32, 4, 4
    ALTER_CONFIGS = 33, 2, 2
    ALTER_REPLICA_LOG_DIRS = 34, 2, 2
    DESCRIBE_LOG_DIRS = 35, 2, 5
    SASL_AUTHENTICATE = 36, 2, 2
    CREATE_PARTITIONS = 37, 2, 3
    CREATE_DELEGATION_TOKEN = 38, 2, 3
    RENEW_DELEGATION_TOKEN = 39, 2, 2
    EXPIRE_DELEGATION_TOKEN = 40, 2, 2
    DESCRIBE_DELEGATION_TOKEN = 41, 2, 3
    DELETE_GROUPS = 42, 2, 3
    ELECT_LEADERS = 43, 2, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 1, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 1
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0
    OFFSET_DELETE = 47, _NEVER, 0
    DESCRIBE_CLIENT_QUOTAS = 48, 1, 1
    ALTER_CLIENT_QUOTAS = 49, 1, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0
    VOTE = 52, 0, 2
    BEGIN_QUORUM_EPOCH = 53, 1, 1
    END_QUORUM_EPOCH = 54, 1, 1
    DESCRIBE_QUORUM = 55, 0, 2
    ALTER_PARTITION = 56, 0, 3
    UPDATE_FEATURES = 57, 0, 2
    ENVELOPE = 58, 0, 0
    FETCH_SNAPSHOT = 59, 0, 1
    DESCRIBE_CLUSTER = 60, 0, 2
    DESCRIBE_PRODUCERS = 61, 0, 0
    BROKER_REGISTRATION = 62, 0, 4
    BROKER_HEARTBEAT = 63, 0, 2
    UNREGISTER_BROKER = 64, 0, 0
    DESCRIBE_TRANSACTIONS = 65, 0, 0
    LIST_TRANSACTIONS = 66, 0, 2
    ALLOCATE_PRODUCER_IDS = 67, 0, 0
    CONSUMER_GROUP_HEARTBEAT = 68, 0, 1
    CONSUMER_GROUP_DESCRIBE = 69, 0, 1
    CONTROLLER_REGISTRATION = 70, 0, 0
    GET_TELEMETRY_SUBSCRIPTIONS = 71, 0, 0
    PUSH_TELEMETRY = 72, 0, 0
    ASSIGN_REPLICAS_TO_DIRS = 73, 0, 0
    LIST_CONFIG_RESOURCES = 74, 0, 1
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0
    SHARE_GROUP_HEARTBEAT = 76, 0, 1
    SHARE_GROUP_DESCRIBE = 77, 0, 1
    SHARE_FETCH = 78, 0, 2
    SHARE_ACKNOWLEDGE = 79, 0, 2
    ADD_RAFT_VOTER = 80, 0, 1
    REMOVE_RAFT_VOTER = 81, 0, 0
    UPDATE_RAFT_VOTER = 82, 0, 0
    INITIALIZE_SHARE_GROUP_STATE = 83, 0, 0
    READ_SHARE_GROUP_STATE = 84, 0, 0
    WRITE_SHARE_GROUP_STATE = 85, 0, 1
    DELETE_SHARE_GROUP_STATE = 86, 0, 0
    READ_SHARE_GROUP_STATE_SUMMARY = 87, 0, 1
    STREAMS_GROUP_HEARTBEAT = 88, 0, 1
    STREAMS_GROUP_DESCRIBE = 89, 0, 1
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 0, 1
    ALTER_SHARE_GROUP_OFFSETS = 91, 0, 0
    DELETE_SHARE_GROUP_OFFSETS = 92, 0, 0
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93, 0, 0
    UNREGISTER_CONTROLLER = 94, 0, 0
