"""The authorization of the client of one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from aioprod.testing.broker.access.authorizer import Authorizer

ANONYMOUS = "ANONYMOUS"
REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Peer(NamedTuple):
    """The other end of a connection.

    Attributes:
        host: its address.
        user: the subject of its certificate, or None.
    """

    host: str
    user: str | None = None


class ClientAccess:
    """The permissions of the client of one request.

    Args:
        authorizer: the authorizer; None if everything is allowed.
        peer: the sender of the request.
        user: the user that is logged in, or None.
    """

    def __init__(self, authorizer: Authorizer | None, peer: Peer, user: str | None) -> None:
        self._authorizer = authorizer
        self._host = peer.host
        self._principal = f"User:{user or peer.user or ANONYMOUS}"

    @property
    def is_limited(self) -> bool:
        """True if the cluster has an authorizer."""
        return self._authorizer is not None

    def allows(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client is authorized for an operation on a resource, by default the
        cluster.
        """
        return self._authorizer is None or self._authorizer.allows(
            self._principal, self._host, operation, kind, name
        )

    def allows_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether the client is authorized for an operation on at least one resource of a
        type.
        """
        return self._authorizer is None or self._authorizer.allows_any(
            self._principal, self._host, operation, kind
        )


Check = Callable[[ClientAccess, Any, str], bool]
"""``(access, request, name) -> True if the client is authorized to use the resource as
requested``.
"""
CheckWhole = Callable[[ClientAccess, Any], ErrorCode]
"""``(access, request) -> the error of the whole request, or NONE``."""


class ApiRule(NamedTuple):
    """The permissions that requests of an API require.

    Attributes:
        whole: the check of the whole request.
        each: the check of each resource in the request, by resource type. A failed check refuses
            only this resource.
    """

    whole: CheckWhole = lambda access, request: ErrorCode.NONE
    each: Mapping[ResourceType, Check] = {}


class RequestAccess(NamedTuple):
    """The rule of a request's API, and the client's permissions.

    Attributes:
        refusal: the error of the whole request, or NONE.
    """

    client: ClientAccess
    rule: ApiRule
    request: Any
    refusal: ErrorCode

    def refusal_of(self, kind: ResourceType, name: str) -> ErrorCode:
        """Return the request's error for this resource, or NONE."""
        check = self.rule.each.get(kind)
        if self.refusal or check is None or check(self.client, self.request, name):
            return self.refusal
        return REFUSALS[kind]
