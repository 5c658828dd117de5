"""Commits and fetches the offsets of a group, with retries until a deadline. Commits that are
requested while one is in flight are sent together.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.retry import retry
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AuthenticationError,
    BrokerError,
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    RebalanceInProgressError,
    UnsupportedVersionError,
)
from aioprod.net.connection import Connection
from aioprod.net.refusals import explain
from aioprod.protocol.group_offsets import (
    LAST_COMMIT_BY_NAME,
    LAST_FETCH_BY_NAME,
    STABLE_FROM,
    TopicIds,
    fetch_offsets,
    named,
    topics_to_commit,
)
from aioprod.protocol.messages.offset_commit import OffsetCommitRequest
from aioprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.running_loop import start_task
from aioprod.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, float, KafkaError | None], None]

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Committer(NamedTuple):
    """The member that commits, in a generation or member epoch; -1 and no id for a consumer with
    assigned partitions.
    """

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Standing(Protocol):
    """The state of the member that commits need."""

    def committer(self, before: Committer | None = None) -> Committer:
        """Return the member as it may commit now.

        Args:
            before: the result when the commit began; a member that has lost its partitions since
                must not commit under a new generation, and one that has unsubscribed not as a
                client outside the group.

        Raises:
            CommitFailedError, RebalanceInProgressError: if it may not commit now.
        """

    def commit_refused(
        self, action: ErrorAction, code: ErrorCode, committer: Committer
    ) -> KafkaError | None:
        """Handle the refusal of a commit; return the error for the caller, None to retry."""


@dataclass(slots=True, eq=False)
class _Commit:
    """One call of :meth:`GroupOffsets.commit`; ``left`` are the offsets that the coordinator has
    not acknowledged, ``ids`` those of the topics that they belong to.
    """

    left: dict[TopicPartition, OffsetAndMetadata]
    committer: Committer
    ids: TopicIds
    deadline: float
    done: asyncio.Future[None]
    last_error: KafkaError | None = None


@dataclass(slots=True)
class GroupOffsets:
    """Commits and fetches a group's offsets.

    Attributes:
        connections: the connections to the coordinator.
        standing: the member.
        metadata: the ids of topics, and whether a partition exists: else its commit is not retried.
        on_commit: called with the offsets of each commit, its seconds, and its error or None.
    """

    connections: GroupConnections
    standing: Standing
    metadata: Metadata
    on_commit: OnCommit = field(default=lambda offsets, seconds, error: None)
    _waiting: list[_Commit] = field(default_factory=list)
    _sending: asyncio.Task[None] | None = None

    # -- commit ------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets, deadline: float) -> None:
        """Commit, and return when the coordinator has acknowledged it. If the caller is cancelled,
        the commit continues.

        Raises:
            CommitFailedError, RebalanceInProgressError: if this member may not commit now.
            KafkaTimeoutError: if ``deadline`` has passed; the message has the last error.
            BrokerError: if the coordinator refuses.
        """
        if not offsets:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        # Of a deleted topic it is the former one: by its name, the offset would be one of the next.
        ids = self.metadata.last_topic_ids({tp.topic for tp in offsets})
        mine = _Commit(
            dict(offsets), self.standing.committer(), ids, deadline, loop.create_future()
        )
        self._waiting.append(mine)
        if self._sending is None or self._sending.done():
            self._sending = start_task(self._send_all(), name="aioprod-commit")
        # The commit is not cancelled with the caller: later ones are sent after it.
        await asyncio.wait([mine.done], timeout=deadline - loop.time())
        if not mine.done.done():
            _fail(mine, self._too_late("OffsetCommit", mine.last_error))
        error = mine.done.exception()
        assert error is None or isinstance(error, KafkaError), error
        self.on_commit(offsets, loop.time() - began, error)
        mine.done.result()

    async def close(self) -> None:
        """Cancel commits in flight."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending], timeout=1)

    async def _send_all(self) -> None:
        """Send waiting commits together, until none is left."""
        batch: list[_Commit] = []
        try:
            failures = 0
            while batch := self._next_batch(batch, self.connections.backoff.seconds(failures)):
                await asyncio.sleep(self.connections.backoff.seconds(failures))
                await self._try_until(max(commit.deadline for commit in batch), batch)
                batch = [commit for commit in batch if not commit.done.done()]
                failures = failures + 1 if batch else 0
        finally:
            for commit in [*batch, *self._waiting]:
                _fail(commit, KafkaError("offsets were not committed: the consumer is closed"))
            self._waiting.clear()

    def _next_batch(self, batch: list[_Commit], pause: float) -> list[_Commit]:
        """Return the commits to send next: the rest of a batch, without those whose deadline is too
        early for a retry, and waiting ones of the same generation, in order.
        """
        now = asyncio.get_running_loop().time()
        for commit in batch:
            if now + pause >= commit.deadline:
                _fail(commit, self._too_late("OffsetCommit", commit.last_error))
        waiting = [commit for commit in self._waiting if not commit.done.done()]
        batch = [commit for commit in batch if not commit.done.done()] or waiting[:1]
        alike = [commit for commit in waiting if commit.committer == batch[0].committer]
        self._waiting = [commit for commit in waiting if commit not in alike]
        return [*(commit for commit in batch if commit not in alike), *alike]

    async def _try_until(self, deadline: float, batch: list[_Commit]) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._try(batch)
        except KafkaError as error:  # some are TimeoutErrors
            refused = (
                isinstance(error, BrokerError)
                and action_for(GroupApi.FIND_COORDINATOR, error.code) is ErrorAction.REFUSED
            )
            for commit in batch:
                commit.last_error = error
                if refused or isinstance(error, AuthenticationError | UnsupportedVersionError):
                    _fail(commit, error)
        except TimeoutError:
            pass  # the next attempt finds out why

    async def _try(self, batch: list[_Commit]) -> None:
        """Send one request, and apply the response to each commit."""
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for commit in batch:
            self._refuse_former_topics(commit)
        batch = [commit for commit in batch if not commit.done.done()]
        for commit in batch:
            offsets |= commit.left
        if not batch:
            return
        try:
            committer = self.standing.committer(batch[0].committer)
        except (CommitFailedError, RebalanceInProgressError) as refusal:
            for commit in batch:
                _fail(commit, refusal)
            return
        codes = await self._commit(offsets, committer)
        errors = {
            tp: error
            for tp, code in codes.items()
            if (error := self._error_of(tp, code, committer)) is not None
        }
        again = {tp for tp, code in codes.items() if code != ErrorCode.NONE and tp not in errors}
        for commit in batch:
            error = next((errors[tp] for tp in commit.left if tp in errors), None)
            if error is not None:
                _fail(commit, error)
                continue
            unanswered = [tp for tp in commit.left if tp in again or tp not in codes]
            commit.left = {tp: commit.left[tp] for tp in unanswered}
            if unanswered:
                code = codes.get(unanswered[0], ErrorCode.UNKNOWN_SERVER_ERROR)
                commit.last_error = BrokerError(
                    code, f"OffsetCommit of {unanswered[0].topic}-{unanswered[0].partition}"
                )
            elif not commit.done.done():
                commit.done.set_result(None)

    def _refuse_former_topics(self, commit: _Commit) -> None:
        """End a commit with an offset of a topic that was created again meanwhile."""
        for tp, at in commit.left.items():
            topic_id = commit.ids.get(tp.topic, ZERO_UUID)
            if self.metadata.snapshot.has_other_topic(tp.topic, topic_id):
                _fail(commit, of_former_topic(tp, at.offset))

    def _error_of(
        self, tp: TopicPartition, code: ErrorCode, committer: Committer
    ) -> KafkaError | None:
        """Return the error for the caller; None after success, and to retry."""
        action = action_for(GroupApi.COMMIT, code)
        if action is ErrorAction.NEW_COORDINATOR:
            self.connections.forget_coordinator()
        if code == ErrorCode.UNKNOWN_TOPIC_ID:  # the topic was deleted, and perhaps made again
            self.metadata.request_update()
        hopeless = code in _UNKNOWN and _is_gone(self.metadata, tp)
        if (
            action in (ErrorAction.DONE, ErrorAction.RETRY, ErrorAction.NEW_COORDINATOR)
            and not hopeless
        ):
            return None
        if action is ErrorAction.REFUSED or hopeless:
            error = BrokerError(
                code,
                f"OffsetCommit of {tp.topic}-{tp.partition} in group {self.connections.group_id!r}",
            )
            return explain(error, "OffsetCommit", self.connections.principal)
        return self.standing.commit_refused(action, code, committer)

    async def _commit(
        self, offsets: Offsets, committer: Committer
    ) -> dict[TopicPartition, ErrorCode]:
        ids = self.metadata.last_topic_ids({tp.topic for tp in offsets})
        request = OffsetCommitRequest(
            self.connections.group_id,
            *committer,
            topics=topics_to_commit(offsets, ids),
        )
        newest = None if ids else LAST_COMMIT_BY_NAME
        reply = await self.connections.ask(
            lambda connection: (request, connection.pick_version(OffsetCommitRequest, newest))
        )
        return {
            TopicPartition(name, answer.partition_index): ErrorCode.of(answer.error_code)
            for name, topic in named(reply.topics, ids)
            for answer in topic.partitions
        }

    def _too_late(self, what: str, last_error: KafkaError | None) -> KafkaTimeoutError:
        why = last_error or self.connections.trouble
        error = KafkaTimeoutError(
            f"{what} in group {self.connections.group_id!r} not completed before the deadline"
            + (f"; the last error: {why}" if why else "")
        )
        error.__cause__ = why
        return error

    # -- read --------------------------------------------------------------------------------------

    async def committed(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, None for partitions without one. Wait for open transactions
        that have offsets of these partitions.

        Raises:
            KafkaTimeoutError: if ``deadline`` has passed; the message has the last error.
            BrokerError: if the coordinator refuses.
        """
        if not partitions:
            return {}
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        last_error: KafkaError | None = None

        async def attempt() -> None:
            nonlocal last_error
            try:
                answer, last_error = await self._fetch([tp for tp in partitions if tp not in found])
            except KafkaError as error:
                last_error = error
                raise
            found.update(answer)
            if missing := [tp for tp in partitions if tp not in found]:
                raise last_error or ProtocolError(f"OffsetFetch: the response lacks {missing[0]}")

        try:
            async with asyncio.timeout_at(deadline):
                await retry(
                    attempt,
                    self.connections.backoff.seconds,
                    is_retriable=_is_retriable,
                    deadline=deadline,
                )
        except KafkaError as error:  # some are TimeoutErrors
            if not _is_retriable(error):
                raise
            raise self._too_late("OffsetFetch", error) from error
        except TimeoutError:
            too_late = self._too_late("OffsetFetch", last_error)
            raise too_late from too_late.__cause__
        return found

    async def _fetch(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata | None], KafkaError | None]:
        """Return the offsets in one response, and the error of missing ones. Raise BrokerError if a
        retry does not help.
        """
        snapshot = self.metadata.snapshot
        ids = snapshot.topic_ids({tp.topic for tp in partitions})
        reply = await self.connections.ask(
            lambda connection: self._fetch_request(connection, partitions, ids)
        )
        group = next(
            (group for group in reply.groups if group.group_id == self.connections.group_id), None
        )
        self._check(ErrorCode.of(group.error_code if group is not None else reply.error_code), "")
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        last_error: KafkaError | None = None
        for tp, answer in _places(reply, ids):
            code = ErrorCode.of(answer.error_code)
            if code == ErrorCode.UNKNOWN_TOPIC_ID:
                self.metadata.request_update()
            elif self.metadata.snapshot.has_other_topic(tp.topic, snapshot.topic_id(tp.topic)):
                code = ErrorCode.UNKNOWN_TOPIC_ID  # the answer is about the deleted topic
            try:
                self._check(code, f" of {tp.topic}-{tp.partition}")
            except BrokerError as error:
                if action_for(GroupApi.FETCH_OFFSETS, code) is ErrorAction.REFUSED:
                    raise
                last_error = error
                continue
            offset = OffsetAndMetadata(
                answer.committed_offset, answer.metadata or "", answer.committed_leader_epoch
            )
            found[tp] = offset if offset.offset >= 0 else None
        return found, last_error

    def _check(self, code: ErrorCode, of: str) -> None:
        action = action_for(GroupApi.FETCH_OFFSETS, code)
        if action is ErrorAction.NEW_COORDINATOR:
            self.connections.forget_coordinator()
        if action is not ErrorAction.DONE:
            error = BrokerError(code, f"OffsetFetch{of} in group {self.connections.group_id!r}")
            raise explain(error, "OffsetFetch", self.connections.principal)

    def _fetch_request(
        self, connection: Connection, partitions: Collection[TopicPartition], ids: TopicIds
    ) -> tuple[OffsetFetchRequest, int]:
        version = connection.pick_version(OffsetFetchRequest, None if ids else LAST_FETCH_BY_NAME)
        return fetch_offsets(
            self.connections.group_id,
            partitions,
            version,
            require_stable=version >= STABLE_FROM,
            ids=ids,
        ), version


def of_former_topic(tp: TopicPartition, offset: int) -> CommitFailedError:
    """Return the error for an offset of a topic that was deleted and created again."""
    return CommitFailedError(
        f"offset {offset} of {tp.topic}-{tp.partition} is not committed: it belongs to a topic "
        "that was deleted, and another one was created with its name"
    )


def _is_retriable(error: KafkaError) -> bool:
    if isinstance(error, BrokerError):
        return action_for(GroupApi.FETCH_OFFSETS, error.code) is not ErrorAction.REFUSED
    return not isinstance(error, AuthenticationError | UnsupportedVersionError)


def _is_gone(metadata: Metadata, tp: TopicPartition) -> bool:
    """Return whether a partition is missing from the metadata."""
    info = metadata.snapshot.topics.get(tp.topic)
    if info is None:
        return metadata.want_all_topics
    return info.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or (
        bool(info.partitions) and tp.partition > info.partitions[-1].partition
    )


def _places(
    reply: OffsetFetchResponse, ids: TopicIds
) -> list[tuple[TopicPartition, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]:
    old = [
        (TopicPartition(topic.name, answer.partition_index), answer)
        for topic in reply.topics
        for answer in topic.partitions
    ]
    new = [
        (TopicPartition(name, answer.partition_index), answer)
        for group in reply.groups
        for name, topic in named(group.topics, ids)
        for answer in topic.partitions
    ]
    return [*old, *new]


def _fail(commit: _Commit, error: KafkaError) -> None:
    if not commit.done.done():
        commit.done.set_exception(error)
        commit.done.exception()  # the caller may be gone
