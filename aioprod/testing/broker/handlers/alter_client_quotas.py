"""AlterClientQuotas (KIP-546): set and remove quotas. An entity's quotas are all changed or not at
all.
"""

from __future__ import annotations

from collections import Counter

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.quotas.quotas import Entity
from aioprod.testing.broker.request_context import RequestContext


@handles(AlterClientQuotasRequest)
async def handle(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Change the quotas of each entity."""
    entities = [
        frozenset({each.entity_type: each.entity_name for each in entry.entity}.items())
        for entry in request.entries
    ]
    counts = Counter(entities)
    by_entity = dict(zip(entities, request.entries, strict=True))
    return AlterClientQuotasResponse(
        entries=[
            _alter(entity, entry, counts[entity] > 1, request.validate_only, context)
            for entity, entry in by_entity.items()
        ]
    )


def _alter(
    entity: Entity, entry: EntryData, repeated: bool, validate_only: bool, context: RequestContext
) -> ResponseEntryData:
    result = ResponseEntryData(
        entity=[ResponseEntityData(kind, name) for kind, name in sorted(entity, key=str)],
        error_message=None,
    )
    try:
        if code := context.failure():
            raise RequestError(code, code.description)
        changes = {op.key: None if op.remove else op.value for op in entry.ops}
        if repeated or len(changes) < len(entry.ops):
            raise RequestError(ErrorCode.INVALID_REQUEST, "an entity or a quota is named twice")
        context.store.quotas.alter(entity, changes, validate_only=validate_only)
    except RequestError as error:
        result.error_code, result.error_message = error.code, error.text
    return result
