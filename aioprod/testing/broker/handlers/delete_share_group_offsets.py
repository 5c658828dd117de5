"""DeleteShareGroupOffsets: delete the offsets of topics in a share group without members
(KIP-932).
"""

from __future__ import annotations

import uuid

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.share_groups.share_partitions import ShareKey


@handles(DeleteShareGroupOffsetsRequest)
async def handle(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Forget the topics; each has a separate result."""
    try:
        check_group(context, request.group_id)
        context.store.groups.existing_empty_share_group(request.group_id)
    except RequestError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.text)
    return DeleteShareGroupOffsetsResponse(
        responses=[_delete(request.group_id, topic.topic_name, context) for topic in request.topics]
    )


def _delete(
    group_id: str, name: str, context: RequestContext
) -> DeleteShareGroupOffsetsResponseTopic:
    topic = context.store.find_topic(name)
    code = context.failure(name)
    if not code and topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if code or topic is None:
        return DeleteShareGroupOffsetsResponseTopic(name, uuid.UUID(int=0), code, code.description)
    topic_id = topic.topic_id

    def is_of_topic(key: ShareKey) -> bool:
        return (key.group_id, key.topic_id) == (group_id, topic_id)

    context.store.shares.forget(is_of_topic)
    return DeleteShareGroupOffsetsResponseTopic(name, topic_id)
