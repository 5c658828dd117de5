"""The authorizer: ACLs, and the operations that they allow. Synchronous decisions, without sockets,
clock or event loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from aioprod.errors import ConfigError
from aioprod.protocol.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from aioprod.public_module import set_module

ANYTHING = "*"  # as name, host, or name of a user
_IMPLYING = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}


@set_module("aioprod.testing")
class Authorizer:
    """The ACLs of an embedded cluster, evaluated like those of Kafka's StandardAuthorizer.

    An ACL allows or denies a principal one operation on a resource, or on all resources whose
    names have a common prefix. A denial takes precedence over a permission. READ, WRITE, DELETE and
    ALTER include DESCRIBE; ALTER_CONFIGS includes DESCRIBE_CONFIGS.

    The principal of a client is ``User:NAME`` with the name of its SASL login. Without a login it
    has the subject of its TLS certificate (``User:CN=alice,O=Example``), and without a certificate
    it is ``User:ANONYMOUS``.

    Args:
        super_users: the principals that are authorized for everything (broker setting super.users).
        acls: the initial ACLs; requests and :meth:`EmbeddedCluster.allow` add others.
        allow_without_acls: allow everything on resources without ACLs (broker setting
            allow.everyone.if.no.acl.found).

    Raises:
        ConfigError: if a principal has no type, such as ``User:``.
    """

    def __init__(
        self,
        super_users: Iterable[str] = (),
        acls: Iterable[AclBinding] = (),
        *,
        allow_without_acls: bool = False,
    ) -> None:
        self.super_users: frozenset[str] = frozenset(super_users)
        self.allow_without_acls = allow_without_acls
        # A dict keeps the order, so that a simulation replays.
        self._acls: dict[AclBinding, None] = {}
        for principal in self.super_users:
            check_principal(principal)
        for acl in acls:
            self.add(acl)

    @property
    def acls(self) -> list[AclBinding]:
        """The ACLs, oldest first."""
        return list(self._acls)

    def add(self, acl: AclBinding) -> None:
        """Add an ACL, unless it exists."""
        check_principal(acl.principal)
        self._acls[acl] = None

    def find(self, selected: AclFilter) -> list[AclBinding]:
        """Return the ACLs that a filter selects."""
        return [acl for acl in self._acls if _is_selected(acl, selected)]

    def remove(self, selected: AclFilter) -> list[AclBinding]:
        """Remove and return the ACLs that a filter selects."""
        removed = self.find(selected)
        for acl in removed:
            del self._acls[acl]
        return removed

    def allows(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> bool:
        """Return whether a client is authorized for an operation on a resource."""
        if principal in self.super_users:
            return True
        found = [acl for acl in self._acls if acl.resource_type is kind and _covers(acl, name)]
        if not found:
            return self.allow_without_acls
        own = [acl for acl in found if _is_about(acl, principal, host)]
        denied = any(
            acl.permission is AclPermission.DENY and acl.operation in (operation, AclOperation.ALL)
            for acl in own
        )
        implying = {operation, AclOperation.ALL, *_IMPLYING.get(operation, ())}
        return not denied and any(
            acl.permission is AclPermission.ALLOW and acl.operation in implying for acl in own
        )

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        """Return whether a client is authorized for an operation on at least one resource of a type
        (KIP-679).
        """
        if self.allows(principal, host, operation, kind, "hardcode"):  # as Kafka's
            return True
        own = [
            acl
            for acl in self._acls
            if acl.resource_type is kind
            and _is_about(acl, principal, host)
            and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = [acl for acl in own if acl.permission is AclPermission.DENY]
        return any(
            not any(_dominates(other, acl) for other in denied)
            for acl in own
            if acl.permission is AclPermission.ALLOW
        )


def check_principal(principal: str) -> str:
    """Return a principal; raise ConfigError if it has no type or no name."""
    kind, _, name = principal.partition(":")
    if not kind or not name:
        raise ConfigError(f"principal={principal!r}: must be TYPE:NAME, such as User:alice")
    return principal


def _covers(acl: AclBinding, name: str) -> bool:
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, ANYTHING)


def _is_about(acl: AclBinding, principal: str, host: str) -> bool:
    kind = principal.partition(":")[0]
    return acl.principal in (principal, f"{kind}:{ANYTHING}") and acl.host in (host, ANYTHING)


def _dominates(denial: AclBinding, allowed: AclBinding) -> bool:
    """Return whether the denial covers everything that the allowed pattern covers."""
    if denial.pattern_type is PatternType.PREFIXED:
        return allowed.resource_name.startswith(denial.resource_name)
    return denial.resource_name == ANYTHING or (
        allowed.pattern_type is PatternType.LITERAL
        and denial.resource_name == allowed.resource_name
    )


def _is_selected(acl: AclBinding, selected: AclFilter) -> bool:
    return (
        _is_any_or(selected.resource_type, acl.resource_type)
        and _is_named(acl, selected)
        and selected.principal in (None, acl.principal)
        and selected.host in (None, acl.host)
        and _is_any_or(selected.operation, acl.operation)
        and _is_any_or(selected.permission, acl.permission)
    )


def _is_any_or(wanted: int, value: int) -> bool:
    return wanted in (1, value)  # ANY is 1 in all enumerations


def _is_named(acl: AclBinding, selected: AclFilter) -> bool:
    kind, name = selected.pattern_type, selected.resource_name
    if kind not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
        return False
    if name is None or name == acl.resource_name:
        return True
    return kind is PatternType.MATCH and _covers(acl, name)


def rights(
    permission: AclPermission,
    principal: str,
    operations: Iterable[AclOperation],
    resource: tuple[ResourceType, str],
    *,
    prefixed: bool,
    host: str,
) -> list[AclBinding]:
    """Create an ACL for each operation."""
    kind, name = resource
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return [
        AclBinding(kind, name, check_principal(principal), operation, permission, pattern, host)
        for operation in operations
    ]
