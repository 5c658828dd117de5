"""ListConfigResources (KIP-1142): what has settings here, which topics and brokers do. Version 0
asks for client metrics, which there are not.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.config_resources import BROKER, TOPIC
from aioprod.testing.broker.handlers.registry import handles

_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_GROUP = 32
_KNOWN = (TOPIC, BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)
_TYPES_FROM = 1


@handles(ListConfigResourcesRequest)
async def handle(
    request: ListConfigResourcesRequest, exchange: Exchange
) -> ListConfigResourcesResponse:
    """List the resources of the types that were asked for, or all."""
    if code := exchange.failure():
        return ListConfigResourcesResponse(error_code=code)
    wanted = (
        set(request.resource_types or _KNOWN)
        if exchange.api_version >= _TYPES_FROM
        else {_CLIENT_METRICS}
    )
    if not wanted <= set(_KNOWN):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = [ConfigResource(name, TOPIC) for name in exchange.store.topics if TOPIC in wanted]
    for kind in (BROKER, _BROKER_LOGGER):
        found += [
            ConfigResource(str(node.node_id), kind)
            for node in exchange.store.cluster.running
            if kind in wanted
        ]
    return ListConfigResourcesResponse(config_resources=found)
