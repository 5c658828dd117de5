"""ListConfigResources (KIP-1142): the topics and brokers, and the groups that have settings.
Version 0 requests client metrics resources, which are not supported.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from aioprod.testing.broker.handlers.config_resources import BROKER, GROUP, TOPIC
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_KNOWN = (TOPIC, BROKER, _BROKER_LOGGER, _CLIENT_METRICS, GROUP)
_TYPES_FROM = 1


@handles(ListConfigResourcesRequest)
async def handle(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources of the requested types, or of all types."""
    if code := context.failure():
        return ListConfigResourcesResponse(error_code=code)
    wanted = (
        set(request.resource_types or _KNOWN)
        if context.api_version >= _TYPES_FROM
        else {_CLIENT_METRICS}
    )
    if not wanted <= set(_KNOWN):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = [ConfigResource(name, TOPIC) for name in context.store.topics if TOPIC in wanted]
    for kind in (BROKER, _BROKER_LOGGER):
        found += [
            ConfigResource(str(node.node_id), kind)
            for node in context.store.cluster.running
            if kind in wanted
        ]
    if GROUP in wanted:
        found += [ConfigResource(name, GROUP) for name in context.store.group_configs.group_ids]
    return ListConfigResourcesResponse(config_resources=found)
