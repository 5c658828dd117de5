"""Commits a stream's positions to a consumer group, so that its lag can be monitored there. Spark's
checkpoint remains authoritative.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aioprod.cluster.client import ClusterClient
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.net.connection import Connection
from aioprod.protocol.group_offsets import HAS_MEMBERS, LAST_COMMIT_BY_NAME, topics_to_commit
from aioprod.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from aioprod.spark.coordination import Coordination
from aioprod.spark.offsets import Offsets
from aioprod.types import OffsetAndMetadata, TopicPartition

log: Logger = get_logger(__name__)

# Monitoring must not delay the query for long.
LIMIT_S = 3.0


class GroupPositions:
    """Commits positions to a group without being a member of it, like Kafka's admin client."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._committed: Offsets = {}
        self._warned_of: str | None = None

    async def commit(self, client: ClusterClient, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the positions that have changed since the last call, within 3 seconds.

        A failure is logged unless it is the same as before; the next call retries.
        """
        changed = {
            tp: offset for tp, offset in positions.items() if self._committed.get(tp) != offset
        }
        if not changed:
            return
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._commit(client, changed)
        except (KafkaError, TimeoutError) as error:
            self._warn(error)
        else:
            self._committed.update(changed)
            self._warned_of = None

    async def _commit(self, client: ClusterClient, positions: Mapping[TopicPartition, int]) -> None:
        topics = topics_to_commit(
            {tp: OffsetAndMetadata(offset) for tp, offset in positions.items()}
        )
        request = OffsetCommitRequest(group_id=self._group, topics=topics)

        def prepare(connection: Connection) -> tuple[OffsetCommitRequest, int]:
            return request, connection.pick_version(OffsetCommitRequest, LAST_COMMIT_BY_NAME)

        reply = await Coordination(client, LIMIT_S).ask(
            CoordinatorType.GROUP, self._group, prepare, _first_error
        )
        if code := _first_error(reply):
            raise BrokerError(code, f"group {self._group!r}")

    def _warn(self, error: Exception) -> None:
        why = str(error) or f"no answer within {LIMIT_S:.0f} s"
        if why == self._warned_of:
            return
        self._warned_of = why
        members = isinstance(error, BrokerError) and error.code in HAS_MEMBERS
        hint = (
            ". It has members: kafka.group.id must name a group that no consumer is in"
            if members
            else ""
        )
        log.warning(
            "positions are not committed to the consumer group %r: %s%s", self._group, why, hint
        )


def _first_error(reply: OffsetCommitResponse) -> ErrorCode:
    codes = (
        ErrorCode.of(partition.error_code)
        for topic in reply.topics
        for partition in topic.partitions
    )
    return next((code for code in codes if code), ErrorCode.NONE)
