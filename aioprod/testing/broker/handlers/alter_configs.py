"""AlterConfigs: replace all settings of a topic or broker."""

from __future__ import annotations

from aioprod.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from aioprod.testing.broker.handlers.config_resources import (
    alter_each,
    check_names_and_values,
    current_overrides,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(AlterConfigsRequest)
async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Change the valid resources; each resource has a separate result."""
    results = alter_each(
        request.resources, _new_overrides, validate_only=request.validate_only, context=context
    )
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(*result) for result in results]
    )


def _new_overrides(asked: AlterConfigsResource, context: RequestContext) -> dict[str, str]:
    overrides = {config.name: config.value for config in asked.configs if config.value is not None}
    check_names_and_values(
        [config.name for config in asked.configs],
        [config.name for config in asked.configs if config.value is None],
    )
    # Raises if the resource is invalid.
    current_overrides(asked.resource_type, asked.resource_name, context)
    return overrides
