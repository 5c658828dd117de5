"""TxnOffsetCommit: offsets that a consumer group commits with a transaction (KIP-98, KIP-447)."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import (
    check_group_coordinator,
    commit_offset,
    topic_name,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.offsets import Committer
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.transactions.enlistment import Support, enlist_group
from aioprod.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aioprod.types import TopicPartition

_ABORTABLE_FROM = 4
_ADDS_FROM = 5


@handles(TxnOffsetCommitRequest)
async def handle(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Check the request once for all partitions, then keep each offset until the transaction
    ends.
    """
    # If a test makes some partitions fail, the others are applied. A request that fails as a whole
    # changes nothing.
    refusal = context.failure() or _refusal(request, context)
    topics = []
    for topic in request.topics:
        name = topic_name(context, topic.name, topic.topic_id)
        partitions = [
            TxnOffsetCommitResponsePartition(
                asked.partition_index, _commit(name, asked, refusal, request, context)
            )
            for asked in topic.partitions
        ]
        topics.append(TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    return TxnOffsetCommitResponse(topics=topics)


def _refusal(request: TxnOffsetCommitRequest, context: RequestContext) -> ErrorCode:
    try:
        if not request.group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        check_group_coordinator(context, request.group_id)
        enlist_group(
            context.store.transactions,
            Support.of(context.api_version, abortable_from=_ABORTABLE_FROM, adds_from=_ADDS_FROM),
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            request.group_id,
        )
        committer = Committer(
            request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
        )
        context.store.groups.check_commit(request.group_id, committer, in_transaction=True)
    except RequestError as error:
        return error.code
    return ErrorCode.NONE


def _commit(
    topic: str | None,
    asked: TxnOffsetCommitRequestPartition,
    refusal: ErrorCode,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> ErrorCode:
    def commit(place: TopicPartition) -> None:
        context.store.offsets.commit_in_transaction(
            request.group_id,
            request.producer_id,
            place,
            asked.committed_offset,
            asked.committed_leader_epoch,
            asked.committed_metadata,
        )

    return commit_offset(context, topic, asked.partition_index, refusal, commit)
