"""DescribeAcls: the ACLs that a filter selects, by resource."""

from __future__ import annotations

from aioprod.protocol.acls import AclBinding
from aioprod.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.acls import get_authorizer, read_filter
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(DescribeAclsRequest)
async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Describe the ACLs, grouped by resource."""
    try:
        found = get_authorizer(context).find(read_filter(request))
    except RequestError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.text)
    by_resource: dict[tuple[int, str, int], list[AclBinding]] = {}
    for acl in found:
        place = acl.resource_type, acl.resource_name, acl.pattern_type
        by_resource.setdefault(place, []).append(acl)
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                *place,
                [
                    AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
                    for acl in acls
                ],
            )
            for place, acls in by_resource.items()
        ],
    )
