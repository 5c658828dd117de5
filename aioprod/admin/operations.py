"""The operations that a client is authorized for on a topic, a group or the cluster (KIP-430)."""

from __future__ import annotations

from aioprod.protocol.acls import AclOperation

_NOT_REQUESTED = -(2**31)


def operations(bits: int) -> frozenset[AclOperation] | None:
    """Convert a bit field of the protocol to a set; None if it was not requested."""
    if bits == _NOT_REQUESTED:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)
