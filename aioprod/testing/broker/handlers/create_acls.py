"""CreateAcls: add ACLs; existing ones stay unchanged."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError
from aioprod.protocol.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from aioprod.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from aioprod.testing.broker.access.authorizer import check_principal
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.acls import get_authorizer
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(CreateAclsRequest)
async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Add the valid ACLs; each has a separate result."""
    return CreateAclsResponse(results=[_create(asked, context) for asked in request.creations])


def _create(asked: AclCreation, context: RequestContext) -> AclCreationResult:
    try:
        get_authorizer(context).add(_read(asked))
    except RequestError as error:
        return AclCreationResult(error.code, error.text)
    return AclCreationResult(error_message=None)


def _read(asked: AclCreation) -> AclBinding:
    """Return the ACL; raise RequestError (INVALID_REQUEST) if it has a value that only filters may
    have, or no resource or principal.
    """
    try:
        acl = AclBinding(
            ResourceType(asked.resource_type),
            asked.resource_name,
            check_principal(asked.principal),
            AclOperation(asked.operation),
            AclPermission(asked.permission_type),
            PatternType(asked.resource_pattern_type),
            asked.host,
        )
    except (ConfigError, ValueError) as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from None
    only_for_filters = {"UNKNOWN", "ANY", "MATCH"} & {
        acl.resource_type.name,
        acl.operation.name,
        acl.permission.name,
        acl.pattern_type.name,
    }
    if only_for_filters:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{acl}: has {sorted(only_for_filters)[0]}")
    if not acl.resource_name:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{acl}: names no resource")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"{acl}: the only cluster is {CLUSTER_NAME!r}"
        )
    return acl
