"""Shared by the handlers of ACLs: the authorizer, and filters."""

from __future__ import annotations

from typing import Protocol

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import (
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from aioprod.testing.broker.access.authorizer import Authorizer
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.request_context import RequestContext


class FilterFields(Protocol):
    """A filter in a request; two APIs have such a class."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def get_authorizer(context: RequestContext) -> Authorizer:
    """Return the cluster's authorizer; raise RequestError if there is none, or if the whole request
    is refused.
    """
    if code := context.failure():
        raise RequestError(code, code.description)
    authorizer = context.store.authorizer
    if authorizer is None:
        raise RequestError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return authorizer


def read_filter(fields: FilterFields) -> AclFilter:
    """Return a filter; raise RequestError (INVALID_REQUEST) if it has an unknown value."""
    try:
        found = AclFilter(
            ResourceType(fields.resource_type_filter),
            fields.resource_name_filter,
            fields.principal_filter,
            AclOperation(fields.operation),
            AclPermission(fields.permission_type),
            PatternType(fields.pattern_type_filter),
            fields.host_filter,
        )
    except ValueError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if not all((found.resource_type, found.operation, found.permission, found.pattern_type)):
        raise RequestError(ErrorCode.INVALID_REQUEST, "the filter contains UNKNOWN elements")
    return found
