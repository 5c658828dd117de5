"""AddPartitionsToTxn: add partitions to a client's transaction. From version 4 on, brokers send it
for several transactions, and may only verify.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_coordinator, fenced_code
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aioprod.types import TopicPartition

_FENCED_CODE_FROM = 2
_SEVERAL_FROM = 4


@handles(AddPartitionsToTxnRequest)
async def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Add all partitions of a transaction or none."""
    if context.api_version >= _SEVERAL_FROM:
        if code := context.failure():
            return AddPartitionsToTxnResponse(error_code=code)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[_result(asked, context) for asked in request.transactions]
        )
    asked = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_result(asked, context).topic_results
    )


def _result(
    asked: AddPartitionsToTxnTransaction, context: RequestContext
) -> AddPartitionsToTxnResult:
    codes = {place: _code_of_place(place, context) for place in _places(asked.topics)}
    if any(codes.values()):
        codes = {place: code or ErrorCode.OPERATION_NOT_ATTEMPTED for place, code in codes.items()}
    elif asked.verify_only:
        codes = {place: _verify(asked, place, context) for place in codes}
    else:
        code = fenced_code(
            _add(asked, list(codes), context), context.api_version, _FENCED_CODE_FROM
        )
        codes = dict.fromkeys(codes, code)
    return AddPartitionsToTxnResult(asked.transactional_id, _topic_results(asked.topics, codes))


def _places(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _code_of_place(place: TopicPartition, context: RequestContext) -> ErrorCode:
    code = context.failure(*place)
    topic = context.store.find_topic(place.topic)
    if not code and (topic is None or topic.partition(place.partition) is None):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code


def _add(
    asked: AddPartitionsToTxnTransaction, places: list[TopicPartition], context: RequestContext
) -> ErrorCode:
    try:
        check_coordinator(context, asked.transactional_id)
        context.store.transactions.add(
            asked.transactional_id,
            ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
            places,
        )
    except RequestError as error:
        return error.code
    return ErrorCode.NONE


def _verify(
    asked: AddPartitionsToTxnTransaction, place: TopicPartition, context: RequestContext
) -> ErrorCode:
    try:
        check_coordinator(context, asked.transactional_id)
        context.store.transactions.verify(
            asked.transactional_id,
            ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
            place,
        )
    except RequestError as error:
        return error.code
    return ErrorCode.NONE


def _topic_results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, codes[TopicPartition(topic.name, index)])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
