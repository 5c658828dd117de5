"""DeleteTopics, by name or by id."""

from __future__ import annotations

from collections import Counter

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_BY_STATE_FROM = 6


@handles(DeleteTopicsRequest)
async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete the topics that exist, and free their memory."""
    by_state = context.api_version >= _BY_STATE_FROM
    wanted = (
        request.topics
        if by_state
        else [DeleteTopicState(name=name) for name in request.topic_names]
    )
    counts = Counter((state.name, state.topic_id.int) for state in wanted)
    once = {(state.name, state.topic_id.int): state for state in wanted}
    return DeleteTopicsResponse(
        responses=[
            _delete(state, counts[key] > 1, request.timeout_ms, context)
            for key, state in once.items()
        ]
    )


def _delete(
    state: DeleteTopicState, repeated: bool, timeout_ms: int, context: RequestContext
) -> DeletableTopicResult:
    topic = context.store.find_topic(state.name or "", state.topic_id)
    code = context.failure(state.name if topic is None else topic.name)
    if not code and (repeated or (state.name is None) is (state.topic_id.int == 0)):
        code = ErrorCode.INVALID_REQUEST  # named twice, or with both name and id, or neither
    if not code and timeout_ms <= 0:
        code = ErrorCode.REQUEST_TIMED_OUT
    if not code and topic is None:
        code = (
            ErrorCode.UNKNOWN_TOPIC_ID
            if state.name is None
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    if code or topic is None:
        return DeletableTopicResult(
            name=state.name,
            topic_id=state.topic_id,
            error_code=code,
            error_message=code.description,
        )
    context.store.delete_topic(topic)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
