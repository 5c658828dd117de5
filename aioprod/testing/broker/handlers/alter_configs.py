"""AlterConfigs: the settings that a resource has of its own are replaced by those of the request, all of them."""

from __future__ import annotations

from collections import Counter

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.config_resources import current_overrides, replace_overrides
from aioprod.testing.broker.store import StoreError


async def handle(request: AlterConfigsRequest, exchange: Exchange) -> AlterConfigsResponse:
    """Change what can be changed; each resource has its own result."""
    counts = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    responses = []
    for asked in request.resources:
        response = AlterConfigsResourceResponse(resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None)
        try:
            if counts[asked.resource_type, asked.resource_name] > 1:
                raise StoreError(ErrorCode.INVALID_REQUEST, "a resource may be named once")
            _alter(asked, request.validate_only, exchange)
        except StoreError as error:
            response.error_code, response.error_message = error.code, error.text
        responses.append(response)
    return AlterConfigsResponse(responses=responses)


def _alter(asked: AlterConfigsResource, validate_only: bool, exchange: Exchange) -> None:
    overrides = {config.name: config.value for config in asked.configs if config.value is not None}
    if len(overrides) < len(asked.configs):
        raise StoreError(ErrorCode.INVALID_REQUEST, "a setting may be named once, and needs a value")
    current_overrides(asked.resource_type, asked.resource_name, exchange)
    replace_overrides(asked.resource_type, asked.resource_name, overrides, validate_only=validate_only, exchange=exchange)
