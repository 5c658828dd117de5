"""IncrementalAlterConfigs (KIP-339): set or delete single settings, or append to and subtract from
lists.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.config_resources import (
    TOPIC,
    alter_each,
    check_names_and_values,
    current_overrides,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.settings.broker_settings import broker_settings
from aioprod.testing.broker.settings.setting import SettingType
from aioprod.testing.broker.settings.topic_settings import topic_settings

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


@handles(IncrementalAlterConfigsRequest)
async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change the valid resources; each resource has a separate result."""
    results = alter_each(
        request.resources, _new_overrides, validate_only=request.validate_only, context=context
    )
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(*result) for result in results]
    )


def _new_overrides(asked: AlterConfigsResource, context: RequestContext) -> dict[str, str]:
    check_names_and_values(
        [config.name for config in asked.configs],
        [
            config.name
            for config in asked.configs
            if config.value is None and config.config_operation != _DELETE
        ],
    )
    overrides = current_overrides(asked.resource_type, asked.resource_name, context)
    for config in asked.configs:
        changed = _change(asked.resource_type, config, overrides.get(config.name))
        overrides.pop(config.name, None)
        if changed is not None:
            overrides[config.name] = changed
    return overrides


def _change(kind: int, config: AlterableConfig, current: str | None) -> str | None:
    """Return the new value of a setting, or None to delete it."""
    if config.config_operation == _SET:
        return config.value
    if config.config_operation == _DELETE:
        return None
    setting = (topic_settings() if kind == TOPIC else broker_settings()).get(config.name)
    if config.config_operation not in (_APPEND, _SUBTRACT):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"{config.name}: unknown operation {config.config_operation}",
        )
    if setting is None or setting.type is not SettingType.LIST:
        operation = "APPEND" if config.config_operation == _APPEND else "SUBTRACT"
        raise RequestError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation} to key {config.name} because its type is not LIST.",
        )
    items = [
        item for item in (setting.default or "" if current is None else current).split(",") if item
    ]
    wanted = (config.value or "").split(",")
    if config.config_operation == _APPEND:
        items += [item for item in dict.fromkeys(wanted) if item not in items]
    else:
        items = [item for item in items if item not in wanted]
    return ",".join(items)
