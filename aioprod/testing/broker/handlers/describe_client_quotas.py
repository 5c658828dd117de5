"""DescribeClientQuotas (KIP-546): the quotas of the entities that match a filter."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.quotas.quotas import CLIENT_ID, IP, USER, QuotaCondition
from aioprod.testing.broker.request_context import RequestContext

_EXACT, _DEFAULT, _ANY = range(3)


@handles(DescribeClientQuotasRequest)
async def handle(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Return the quotas of the entities that meet all conditions."""
    try:
        if code := context.failure():
            raise RequestError(code, code.description)
        matches = _matches(request.components)
    except RequestError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.text, entries=None
        )
    entries = [
        EntryData(
            [
                EntityData(kind, name)
                for kind, name in sorted(entity, key=lambda each: each[0], reverse=True)
            ],
            [ValueData(key, value) for key, value in values.items()],
        )
        for entity, values in context.store.quotas.find(matches, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _matches(components: list[ComponentData]) -> list[QuotaCondition]:
    types = [component.entity_type for component in components]
    if (
        len(set(types)) < len(types)
        or "" in types
        or (IP in types and {USER, CLIENT_ID} & set(types))
    ):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "an entity type is named twice, or ip together with others",
        )
    return [_match(component) for component in components]


def _match(component: ComponentData) -> QuotaCondition:
    kind = component.entity_type
    if kind not in (USER, CLIENT_ID, IP):
        raise RequestError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"entity type {kind!r}: must be {USER}, {CLIENT_ID} or {IP}",
        )
    if component.match_type not in (_EXACT, _DEFAULT, _ANY) or (component.match is None) is (
        component.match_type == _EXACT
    ):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            (
                f"match type {component.match_type} with {component.match!r}: only an exact "
                "match has a name"
            ),
        )
    return QuotaCondition(kind, component.match_type != _ANY, component.match)
