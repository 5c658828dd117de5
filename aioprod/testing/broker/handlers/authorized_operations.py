"""The operations that a client is authorized for (KIP-430): all, because the broker has no ACLs.
The bits are Kafka's numbers of operations.
"""

from __future__ import annotations

(
    CREATE,
    DELETE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
    CREATE_TOKENS,
    DESCRIBE_TOKENS,
) = range(5, 15)
READ, WRITE = 3, 4
CLUSTER_OPERATIONS = (
    CREATE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
)
TOPIC_OPERATIONS = (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
GROUP_OPERATIONS = (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
_NOT_ASKED_FOR = -(2**31)


def operations(allowed: tuple[int, ...], *, wanted: bool) -> int:
    """Return all operations, or the value that says that the client did not ask."""
    return sum(1 << operation for operation in allowed) if wanted else _NOT_ASKED_FOR
