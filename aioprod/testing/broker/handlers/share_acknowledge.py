"""ShareAcknowledge: acknowledges records without fetching others (KIP-932)."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.handlers.share_requests import (
    Outcome,
    acknowledge_all,
    by_topic,
    end_session,
    is_last,
    session_key,
)
from aioprod.testing.broker.leaders import leader_addresses
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.share_groups.sessions import FIRST_EPOCH, SessionKey, SharedPlace


@handles(ShareAcknowledgeRequest)
async def handle(
    request: ShareAcknowledgeRequest, context: RequestContext
) -> ShareAcknowledgeResponse:
    """Apply the acknowledgements, with a separate result for each partition."""
    try:
        key = session_key(request, context)
        _use_session(request, key, context)
    except RequestError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.text)
    asked = [
        (SharedPlace(topic.topic_id, each.partition_index), each.acknowledgement_batches)
        for topic in request.topics
        for each in topic.partitions
    ]
    outcomes = acknowledge_all(request, asked, key, context)
    if is_last(request):
        end_session(key, context)
    nodes = leader_addresses((outcome.leader for outcome in outcomes.values()), context)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=context.store.group_configs.share(
            key.group_id
        ).lock_duration_ms,
        responses=[
            ShareAcknowledgeTopicResponse(
                places[0].topic_id, [_answer(place, outcomes[place]) for place in places]
            )
            for places in by_topic(outcomes).values()
        ],
        node_endpoints=[NodeEndpoint(node.node_id, node.host, node.port) for node in nodes],
    )


def _use_session(
    request: ShareAcknowledgeRequest, key: SessionKey, context: RequestContext
) -> None:
    """Raise RequestError unless the member has a session in this epoch."""
    sessions = context.store.shares.sessions(context.node.node_id, context.disconnected)
    if request.share_session_epoch == FIRST_EPOCH:
        raise RequestError(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with a ShareFetch"
        )
    if is_last(request):
        sessions.find(key)
    else:
        sessions.use(key, request.share_session_epoch)


def _answer(place: SharedPlace, outcome: Outcome) -> PartitionData:
    return PartitionData(
        partition_index=place.partition,
        error_code=outcome.code,
        error_message=outcome.text,
        current_leader=LeaderIdAndEpoch(outcome.leader, outcome.leader_epoch)
        if outcome.leader >= 0
        else LeaderIdAndEpoch(),
    )
