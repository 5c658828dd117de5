"""ACLs by user."""

from __future__ import annotations

from aioprod.errors import ConfigError
from aioprod.protocol.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    ResourceType,
)
from aioprod.testing.broker.access.authorizer import ANYTHING, Authorizer, rights


class AccessControls:
    """The ACLs of an embedded cluster."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer

    @property
    def acls(self) -> list[AclBinding]:
        """The ACLs, oldest first."""
        return [] if self._authorizer is None else self._authorizer.acls

    def allow(
        self,
        principal: str,
        *operations: AclOperation,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        prefixed: bool = False,
        host: str = ANYTHING,
    ) -> None:
        """Allow a principal operations on a resource, or on the cluster if no resource is named:
        ``broker.allow("User:alice", AclOperation.WRITE, topic="orders")``.

        Args:
            principal: the principal, such as ``User:alice``; ``User:*`` for all.
            operations: the operations to allow.
            topic: the name of a topic; ``*`` for all.
            group: the id of a group; ``*`` for all.
            transactional_id: a transactional id; ``*`` for all.
            prefixed: treat the name as a prefix of resource names.
            host: the address of clients; ``*`` for any.

        Raises:
            ConfigError: if the cluster has no authorizer, or an argument is invalid.
        """
        resource = _resource(topic, group, transactional_id)
        self._add(AclPermission.ALLOW, principal, operations, resource, prefixed, host)

    def deny(
        self,
        principal: str,
        *operations: AclOperation,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        prefixed: bool = False,
        host: str = ANYTHING,
    ) -> None:
        """Deny a principal operations, even if they are allowed. The arguments are those of
        :meth:`allow`.

        Raises:
            ConfigError: if the cluster has no authorizer, or an argument is invalid.
        """
        resource = _resource(topic, group, transactional_id)
        self._add(AclPermission.DENY, principal, operations, resource, prefixed, host)

    def _add(
        self,
        permission: AclPermission,
        principal: str,
        operations: tuple[AclOperation, ...],
        resource: tuple[ResourceType, str],
        prefixed: bool,
        host: str,
    ) -> None:
        if self._authorizer is None:
            raise ConfigError("authorizer=None: give EmbeddedCluster an Authorizer to use ACLs")
        acls = rights(permission, principal, operations, resource, prefixed=prefixed, host=host)
        for acl in acls:
            self._authorizer.add(acl)


def _resource(
    topic: str | None, group: str | None, transactional_id: str | None
) -> tuple[ResourceType, str]:
    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
    }
    found = [(kind, name) for kind, name in named.items() if name is not None]
    if len(found) > 1:
        raise ConfigError("topic, group, transactional_id: at most one can be given")
    return found[0] if found else (ResourceType.CLUSTER, CLUSTER_NAME)
