"""``offsets_for_times``, ``beginning_offsets``, ``end_offsets``, ``partitions_for_topic`` and
``topics``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from aioprod.arguments import check_partitions, check_timestamps, check_topics
from aioprod.cluster.retry import retry
from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo
from aioprod.config.consumer import ConsumerConfig
from aioprod.config.settings.client import ISOLATION_LEVELS
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.connections import Connections
from aioprod.consumer.membership import INTERNAL_TOPICS
from aioprod.consumer.offset_lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    by_leader,
    found_offsets,
    left_out,
    list_offsets_request,
)
from aioprod.consumer.problems import is_worth_raising
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError, KafkaTimeoutError
from aioprod.types import OffsetAndTimestamp, TopicPartition

T = TypeVar("T")


class LookupCalls:
    """Asks brokers for offsets and topics; changes no state of the consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        guard: CallGuard,
        connections: Connections,
    ) -> None:
        self._config = config
        self._guard = guard
        self._metadata = connections.metadata
        self._requests = connections.requests
        self._backoff = connections.backoff

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time."""
        found = await self._offsets(check_timestamps(timestamps), timeout_ms)
        return {tp: answer if answer.offset >= 0 else None for tp, answer in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        """Return the first offsets."""
        timestamps = dict.fromkeys(check_partitions(partitions), EARLIEST_TIMESTAMP)
        found = await self._offsets(timestamps, timeout_ms)
        return {tp: answer.offset for tp, answer in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        """Return the offsets after the last records."""
        timestamps = dict.fromkeys(check_partitions(partitions), LATEST_TIMESTAMP)
        found = await self._offsets(timestamps, timeout_ms)
        return {tp: answer.offset for tp, answer in found.items()}

    async def partitions_for_topic(self, topic: str, timeout_ms: float | None) -> frozenset[int]:
        """Return the numbers of a topic's partitions."""
        (name,) = check_topics([topic])
        async with self._guard.waiting_call():
            deadline = self._guard.deadline(timeout_ms)
            snapshot = await self._refresh([name], deadline)
            info = snapshot.topics.get(topic)
            error = snapshot.topic_error(topic)
            if error is not None and error.code not in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.LEADER_NOT_AVAILABLE,
            ):
                raise error
            return (
                frozenset(partition.partition for partition in info.partitions)
                if info is not None
                else frozenset()
            )

    async def topics(self, timeout_ms: float | None) -> frozenset[str]:
        """Return the names of all topics."""
        async with self._guard.waiting_call():
            snapshot = await self._refresh(None, self._guard.deadline(timeout_ms))
            hidden = INTERNAL_TOPICS if self._config.exclude_internal_topics else frozenset()
            return frozenset(snapshot.topics) - hidden

    async def _refresh(
        self, topics: list[str] | None, deadline: float, before: KafkaError | None = None
    ) -> ClusterSnapshot:
        """Fetch metadata.

        Args:
            before: an earlier failure, for the text of a timeout.
        """
        last_error = before

        async def attempt() -> ClusterSnapshot:
            nonlocal last_error
            try:
                return await self._metadata.refresh(topics)
            except KafkaError as error:
                last_error = error
                raise

        try:
            async with asyncio.timeout_at(deadline):
                return await self._retry(attempt, deadline, "metadata")
        except KafkaError:  # also a timeout of one request, which is not the deadline
            raise
        except TimeoutError as error:
            why = f"; the last error: {last_error}" if last_error is not None else ""
            raise KafkaTimeoutError(f"no broker has answered with metadata in time{why}") from (
                last_error or error
            )

    async def _retry(self, attempt: Callable[[], Awaitable[T]], deadline: float, what: str) -> T:
        try:
            return await retry(
                attempt,
                self._backoff.seconds,
                is_retriable=lambda error: not is_worth_raising(error),
                deadline=deadline,
            )
        except KafkaError as error:
            if is_worth_raising(error):
                raise
            raise KafkaTimeoutError(
                f"no answer with {what} in time; the last error: {error}"
            ) from error

    async def _offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        async with self._guard.waiting_call():
            deadline = self._guard.deadline(timeout_ms)
            found: dict[TopicPartition, OffsetAndTimestamp] = {}
            failure: KafkaError | None = None

            async def attempt() -> None:
                nonlocal failure
                missing = {tp: at for tp, at in timestamps.items() if tp not in found}
                topics = sorted({tp.topic for tp in missing})
                snapshot = await self._refresh(topics, deadline, failure)
                failure = await self._ask_offsets(snapshot, missing, found, deadline)
                if failure is not None:
                    raise failure

            if timestamps:
                await self._retry(attempt, deadline, "offsets")
            return {tp: found[tp] for tp in timestamps}

    async def _ask_offsets(
        self,
        snapshot: ClusterSnapshot,
        timestamps: Mapping[TopicPartition, int],
        found: dict[TopicPartition, OffsetAndTimestamp],
        deadline: float,
    ) -> KafkaError | None:
        """Ask each leader once, add the answers to ``found``, and return the last failure."""
        failure: KafkaError | None = None
        leaders: dict[TopicPartition, PartitionInfo] = {}
        for tp in timestamps:
            info = snapshot.find_leader(tp)
            if isinstance(info, PartitionInfo):
                leaders[tp] = info
            else:
                failure = info or BrokerError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp.topic}-{tp.partition}"
                )
        limit_ms = max(deadline - asyncio.get_running_loop().time(), 0) * 1000
        isolation = ISOLATION_LEVELS[self._config.isolation_level]
        asked = {
            self._requests.send(
                node_id,
                list_offsets_request(
                    partitions,
                    timestamps,
                    isolation,
                    min(limit_ms, self._config.request_timeout_ms),
                ),
            )
            for node_id, partitions in by_leader(leaders).items()
        }
        if not asked:
            return failure
        done, pending = await asyncio.wait(asked, timeout=limit_ms / 1000)
        for late in pending:
            late.cancel()
            failure = KafkaTimeoutError("no answer with offsets in time")
        for answer in done:
            error = answer.exception()
            if error is not None:
                assert isinstance(error, KafkaError), error
                failure = error
                continue
            answered = found_offsets(answer.result(), timestamps, snapshot.principal)
            for tp, offset in answered.items():
                if isinstance(offset, KafkaError):
                    failure = offset
                else:
                    found[tp] = offset
        return failure or left_out(timestamps, found)
