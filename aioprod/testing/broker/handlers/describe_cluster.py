"""DescribeCluster (KIP-700, KIP-919): the running nodes, as brokers. Clients can't connect to
controllers.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import ResourceType
from aioprod.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aioprod.testing.broker.handlers.authorized_operations import operations
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_BROKERS = 1
_CONTROLLERS = 2


@handles(DescribeClusterRequest)
async def handle(
    request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """List the running nodes."""
    code = context.failure()
    if not code and request.endpoint_type != _BROKERS:
        code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == _CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
    if code:
        return DescribeClusterResponse(error_code=code, error_message=code.description)
    cluster = context.store.cluster
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(node.node_id, node.host, node.port) for node in cluster.running
        ],
        cluster_authorized_operations=operations(
            context, ResourceType.CLUSTER, wanted=request.include_cluster_authorized_operations
        ),
    )
