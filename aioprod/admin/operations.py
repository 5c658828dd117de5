"""The operations that a client is authorized for on a topic, a group or the cluster (KIP-430)."""

from __future__ import annotations

from enum import IntEnum

_NOT_REQUESTED = -(2**31)


class AclOperation(IntEnum):
    """Kafka's ACL operations, with their numbers."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def operations(bits: int) -> frozenset[AclOperation] | None:
    """Return a bit field of the protocol as a set; None if it was not requested."""
    if bits == _NOT_REQUESTED:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)
