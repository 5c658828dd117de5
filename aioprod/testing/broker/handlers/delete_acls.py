"""DeleteAcls: remove the ACLs that filters select."""

from __future__ import annotations

from aioprod.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.acls import get_authorizer, read_filter
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(DeleteAclsRequest)
async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Remove ACLs; each filter has a separate result with the removed ACLs."""
    return DeleteAclsResponse(filter_results=[_delete(each, context) for each in request.filters])


def _delete(asked: DeleteAclsFilter, context: RequestContext) -> DeleteAclsFilterResult:
    try:
        removed = get_authorizer(context).remove(read_filter(asked))
    except RequestError as error:
        return DeleteAclsFilterResult(error.code, error.text)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in removed
        ],
    )
