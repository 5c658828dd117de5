"""DescribeConfigs: the settings of topics, brokers and groups, and the sources of their values,
without documentation.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.config_resources import (
    BROKER,
    GROUP,
    TOPIC,
    check_broker_name,
    check_group_name,
    find_topic,
    unknown_kind,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.settings.configs import ALL_BROKERS, DescribedSetting


@handles(DescribeConfigsRequest)
async def handle(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe each resource. A null or empty list of names means all settings."""
    return DescribeConfigsResponse(
        results=[_result(asked, request.include_synonyms, context) for asked in request.resources]
    )


def _result(
    asked: DescribeConfigsResource, with_synonyms: bool, context: RequestContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=""
    )
    try:
        result.configs = [
            _entry(described, with_synonyms) for described in _describe(asked, context)
        ]
    except RequestError as error:
        result.error_code, result.error_message = error.code, error.text
    return result


def _describe(asked: DescribeConfigsResource, context: RequestContext) -> list[DescribedSetting]:
    configs, names = context.store.configs, asked.configuration_keys or None
    if asked.resource_type == TOPIC:
        return configs.describe_topic(
            find_topic(asked.resource_name, context).configs, names, context.node.node_id
        )
    if asked.resource_type == GROUP:
        check_group_name(asked.resource_name, context, "Group name must not be empty")
        return context.store.group_configs.describe(
            asked.resource_name, names, context.node.node_id
        )
    if asked.resource_type != BROKER:
        raise RequestError(ErrorCode.INVALID_REQUEST, unknown_kind(asked.resource_type))
    check_broker_name(asked.resource_name, context)
    return (
        configs.describe_all_brokers(names)
        if asked.resource_name == ALL_BROKERS
        else configs.describe_broker(context.node, names)
    )


def _entry(described: DescribedSetting, with_synonyms: bool) -> DescribeConfigsResourceResult:
    setting = described.setting
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=described.value,
        read_only=not setting.dynamic,
        config_source=described.source,
        is_sensitive=setting.is_sensitive,
        synonyms=[DescribeConfigsSynonym(*synonym) for synonym in described.synonyms]
        if with_synonyms
        else [],
        config_type=setting.type,
        documentation=None,
    )
