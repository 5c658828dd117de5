"""The operations that a client is authorized for (KIP-430), as a set of bits."""

from __future__ import annotations

from aioprod.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from aioprod.testing.broker.request_context import RequestContext

_OPERATIONS = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
_NOT_ASKED_FOR = -(2**31)


def operations(
    context: RequestContext, kind: ResourceType, name: str = CLUSTER_NAME, *, wanted: bool
) -> int:
    """Return the operations on a resource that the client is authorized for, or the default value
    if it did not request them. As in Kafka, a client that is not authorized to describe the cluster
    gets no operations on it.
    """
    if not wanted:
        return _NOT_ASKED_FOR
    if kind is ResourceType.CLUSTER and not context.allows(AclOperation.DESCRIBE, kind):
        return 0
    return sum(1 << each for each in _OPERATIONS[kind] if context.allows(each, kind, name))
