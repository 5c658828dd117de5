"""Finds the positions of partitions: committed offsets, resets, and validation after a change of
leader (KIP-320).

Like the fetcher, it runs in callbacks; only fetching committed offsets is a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from aioprod.cluster.snapshot import PartitionInfo
from aioprod.config.consumer import ConsumerConfig
from aioprod.config.offset_reset import BY_DURATION, EARLIEST, LATEST, NONE, OffsetReset
from aioprod.config.settings.client import ISOLATION_LEVELS
from aioprod.consumer.connections import Connections
from aioprod.consumer.membership import Membership
from aioprod.consumer.offset_lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEnd,
    by_leader,
    epoch_request,
    found_epochs,
    found_offsets,
    list_offsets_request,
)
from aioprod.consumer.problems import Problems
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.subscription import PartitionState, Phase, Position, SubscriptionState
from aioprod.errors import KafkaError, LogTruncationError, NoOffsetError, UnsupportedVersionError
from aioprod.logs import Logger, get_logger, listed
from aioprod.running_loop import start_task
from aioprod.types import OffsetAndTimestamp, TopicPartition

log: Logger = get_logger(__name__)

_NEVER = float("inf")
_Asked = Mapping[TopicPartition, tuple[PartitionState, int]]
"""Partitions of a request, with their version when it was sent."""


class PositionFinder:
    """Gives each assigned partition a position.

    Args:
        membership: fetches committed offsets.
        clock: seconds since 1970, for resets by duration.
        scheduler: woken after each response.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        connections: Connections,
        subscription: SubscriptionState,
        problems: Problems,
        membership: Membership,
        clock: Callable[[], float],
        scheduler: Scheduler,
    ) -> None:
        self._config = config
        self._metadata = connections.metadata
        self._subscription = subscription
        self._requests = connections.requests
        self._fetch_requests = connections.fetch_requests
        self._problems = problems
        self._backoff = connections.backoff
        self._membership = membership
        self._clock = clock
        self._reset = config.offset_reset
        self._asking: dict[
            TopicPartition, tuple[int, int]
        ] = {}  # node id and partition version of the request in flight
        self._committed: asyncio.Task[None] | None = None
        self._scheduler = scheduler

    def step(self, now: float) -> float:
        """Send the requests that are due; return the loop time of the next call, at the latest."""
        for state in self._subscription.partitions.values():
            if state.phase is not Phase.FETCHING:
                break
        else:
            return _NEVER  # as after nearly every response
        # Partitions without a position come first: some can be reset at once.
        initial = [
            state
            for state in self._subscription.in_phase(Phase.INITIALIZING)
            if state.retry_at <= now and state.failure is None
        ]
        if initial:
            self._initialize(initial, now)
        due: dict[Phase, list[PartitionState]] = {phase: [] for phase in Phase}
        again_at = _NEVER
        for state in self._subscription.partitions.values():
            if state.phase is Phase.FETCHING or state.failure is not None:
                continue
            if state.retry_at > now:
                again_at = min(again_at, state.retry_at)
            else:
                due[state.phase].append(state)
        for phase, ask in (
            (Phase.AWAIT_RESET, self._ask_offsets),
            (Phase.AWAIT_VALIDATION, self._ask_epochs),
        ):
            leaders = self._leaders(due[phase], now)
            for node_id, partitions in by_leader(leaders).items():
                ask(node_id, partitions)
            again_at = min(
                [again_at, *(state.retry_at for state in due[phase] if state.retry_at > now)]
            )
        return again_at

    async def close(self) -> None:
        """Cancel the task."""
        if self._committed is not None:
            self._committed.cancel()
            await asyncio.wait([self._committed], timeout=1)

    # -- the first position ------------------------------------------------------------------------

    def _initialize(self, states: list[PartitionState], now: float) -> None:
        found = (self._metadata.snapshot.find_leader(state.tp) for state in states)
        for leader in {info.leader for info in found if isinstance(info, PartitionInfo)}:
            self._fetch_requests.connect(leader)  # while the positions are looked up
        if self._config.group_id is None:
            self._without_committed(states, now)
        elif self._committed is None:
            asked = {state.tp: (state, state.version) for state in states}
            self._committed = start_task(
                self._ask_committed(asked), name="aioprod-committed-offsets"
            )
            self._committed.add_done_callback(self._scheduler.guarded(self._committed_done))

    async def _ask_committed(self, asked: _Asked) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.default_api_timeout_ms / 1000
        try:
            committed = await self._membership.committed(list(asked), deadline)
        except KafkaError as error:
            self._all_failed(asked, Phase.INITIALIZING, error, loop.time())
            return
        now = loop.time()
        present = [
            (state, committed.get(state.tp))
            for state in _present(self._subscription, asked, Phase.INITIALIZING)
        ]
        for state, offset in present:
            self._problems.over(state.tp)
            if offset is not None:
                self._subscription.seek(state.tp, Position(offset.offset, offset.leader_epoch))
        self._without_committed([state for state, offset in present if offset is None], now)

    def _committed_done(self, task: asyncio.Task[None]) -> None:
        self._committed = None
        if not task.cancelled() and (error := task.exception()) is not None:
            now = asyncio.get_running_loop().time()
            self._problems.report(
                "committed",
                error
                if isinstance(error, KafkaError)
                else KafkaError(f"committed offsets: {error!r}"),
                now,
            )
            for state in self._subscription.in_phase(Phase.INITIALIZING):
                self._pause(state, now)
        self._scheduler.wake_all()

    def _without_committed(self, states: Iterable[PartitionState], now: float) -> None:
        for state in states:
            if self._reset.strategy != NONE:
                state.look_up(self._reset)
                continue
            name = f"{state.tp.topic}-{state.tp.partition}"
            what = (
                f"{name} has neither a position nor a committed offset, and auto_offset_reset is "
                "'none'; seek to the offset at which to begin"
            )
            state.failure = NoOffsetError(what, state.tp)
            self._problems.report(state.tp, state.failure, now)

    # -- resets ------------------------------------------------------------------------------------

    def _ask_offsets(self, node_id: int, leaders: Mapping[TopicPartition, PartitionInfo]) -> None:
        timestamps = {tp: self._timestamp(self._subscription[tp]) for tp in leaders}
        request = list_offsets_request(
            leaders,
            timestamps,
            ISOLATION_LEVELS[self._config.isolation_level],
            self._config.request_timeout_ms,
        )
        self._send(node_id, request, leaders, self._take_offsets)

    def _timestamp(self, state: PartitionState) -> int:
        assert state.reset is not None
        if state.reset.strategy == BY_DURATION:
            return max(round(self._clock() * 1000) - state.reset.duration_ms, 0)
        return EARLIEST_TIMESTAMP if state.reset.strategy == EARLIEST else LATEST_TIMESTAMP

    def _take_offsets(
        self, leaders: Mapping[TopicPartition, PartitionInfo], asked: _Asked, reply: Any, now: float
    ) -> None:
        present = _present(self._subscription, asked, Phase.AWAIT_RESET)
        timestamps = {state.tp: self._timestamp(state) for state in present}
        found = found_offsets(reply, timestamps, self._metadata.snapshot.principal)
        resets = []
        for state in present:
            answer = found.get(state.tp)
            if isinstance(answer, OffsetAndTimestamp) and answer.offset >= 0:
                resets.append(_described(state, answer.offset))
                state.found(Position(answer.offset, answer.leader_epoch))
                self._problems.over(state.tp)
                self._note_resumed(state)
            elif isinstance(answer, OffsetAndTimestamp):
                state.look_up(OffsetReset(LATEST))  # all records are earlier
            else:
                self._failed(state, answer or _left_out(state), now)
        if resets:
            log.info("%s: positions reset: %s", self._config.client_id, listed(resets))

    def _note_resumed(self, state: PartitionState) -> None:
        """Log where a partition continues whose topic was deleted and created again."""
        former, position = state.former, state.position
        if former is None or position is None or former.resumed_at >= 0:
            return
        former.resumed_at = position.offset
        log.info(
            "%s: %s-%d continues at offset %d of the new topic",
            self._config.client_id,
            *state.tp,
            position.offset,
        )

    # -- after a change of leader ------------------------------------------------------------------

    def _ask_epochs(self, node_id: int, leaders: Mapping[TopicPartition, PartitionInfo]) -> None:
        positions = {tp: self._subscription[tp].position for tp in leaders}
        epochs = {
            tp: position.leader_epoch for tp, position in positions.items() if position is not None
        }
        self._send(node_id, epoch_request(leaders, epochs), leaders, self._take_epochs)

    def _take_epochs(
        self, leaders: Mapping[TopicPartition, PartitionInfo], asked: _Asked, reply: Any, now: float
    ) -> None:
        found = found_epochs(reply, self._metadata.snapshot.principal)
        for state in _present(self._subscription, asked, Phase.AWAIT_VALIDATION):
            answer = found.get(state.tp)
            assert state.position is not None
            if not isinstance(answer, EpochEnd):
                self._failed(state, answer or _left_out(state), now)
            elif answer.end_offset >= state.position.offset:
                self._confirm(state, leaders[state.tp].leader_epoch)
            elif (
                state.position.leader_epoch >= leaders[state.tp].leader_epoch
                and self._reset.strategy != NONE
            ):
                # A log is truncated under a newer leader. Without one, the position is that of a
                # deleted topic, and its records are not those of this log.
                self._truncated(state, EpochEnd(-1, -1), now)
            else:
                self._truncated(state, answer, now)

    def _confirm(self, state: PartitionState, leader_epoch: int) -> None:
        assert state.position is not None
        state.validated_epoch = leader_epoch
        state.found(state.position)
        self._problems.over(state.tp)

    def _truncated(self, state: PartitionState, end: EpochEnd, now: float) -> None:
        """Continue where the log differs from the records read, or raise LogTruncationError if
        ``auto_offset_reset`` is "none".
        """
        assert state.position is not None
        tp, offset = state.tp, state.position.offset
        if self._reset.strategy == NONE:
            where = (
                f"it differs from offset {end.end_offset} on"
                if end.end_offset >= 0
                else "the first offset that differs is unknown"
            )
            what = (
                f"{tp.topic}-{tp.partition} was truncated before offset {offset}: {where}, and "
                "auto_offset_reset is 'none'; seek to the offset at which to continue"
            )
            state.failure = LogTruncationError(what, tp, offset, end.end_offset)
            self._problems.report(tp, state.failure, now)
        elif end.end_offset < 0:
            log.warning(
                "%s: %s-%d has other records before offset %d than those that were read: "
                "auto_offset_reset=%s decides where it continues",
                self._config.client_id,
                *tp,
                offset,
                self._reset.strategy,
            )
            self._subscription.seek_by([tp], self._reset)
        else:
            log.warning(
                "%s: %s-%d was truncated before offset %d: continuing at offset %d, the first that "
                "differs",
                self._config.client_id,
                *tp,
                offset,
                end.end_offset,
            )
            self._subscription.seek(tp, Position(end.end_offset))

    # -- requests ----------------------------------------------------------------------------------

    def _leaders(
        self, states: list[PartitionState], now: float
    ) -> dict[TopicPartition, PartitionInfo]:
        """Return the leaders of the partitions without a request in flight. Request metadata if a
        leader is unknown.
        """
        leaders: dict[TopicPartition, PartitionInfo] = {}
        for state in states:
            info = self._metadata.snapshot.find_leader(state.tp)
            if not isinstance(info, PartitionInfo):
                self._failed(state, info, now)
            elif self._asking.get(state.tp) != (info.leader, state.version):
                leaders[state.tp] = info
        return leaders

    def _send(
        self,
        node_id: int,
        request: Any,
        leaders: Mapping[TopicPartition, PartitionInfo],
        take: Callable[..., None],
    ) -> None:
        asked = {
            tp: (state, state.version)
            for tp in leaders
            if (state := self._subscription.get(tp)) is not None
        }
        for tp, (_, version) in asked.items():
            self._asking[tp] = node_id, version
        self._fetch_requests.connect(node_id)  # the response leads to a fetch
        self._requests.send(node_id, request).add_done_callback(
            self._scheduler.guarded(partial(self._answered, node_id, leaders, asked, take))
        )

    def _answered(
        self,
        node_id: int,
        leaders: Mapping[TopicPartition, PartitionInfo],
        asked: _Asked,
        take: Callable[..., None],
        answer: asyncio.Future[Any],
    ) -> None:
        now = asyncio.get_running_loop().time()
        current: dict[TopicPartition, tuple[PartitionState, int]] = {}
        for tp, (state, version) in asked.items():
            if self._asking.get(tp) == (node_id, version):
                del self._asking[tp]
                current[tp] = state, version
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            take(leaders, current, answer.result(), now)
        elif isinstance(error, UnsupportedVersionError) and take == self._take_epochs:
            # Brokers of this age have no leader epochs.
            for state in _present(self._subscription, current, Phase.AWAIT_VALIDATION):
                self._confirm(state, leaders[state.tp].leader_epoch)
        else:
            assert isinstance(error, KafkaError), error
            for phase in (Phase.AWAIT_RESET, Phase.AWAIT_VALIDATION):
                self._all_failed(current, phase, error, now)
        self._scheduler.wake_all()

    def _all_failed(self, asked: _Asked, phase: Phase, error: KafkaError, now: float) -> None:
        for state in _present(self._subscription, asked, phase):
            self._failed(state, error, now)

    def _failed(self, state: PartitionState, error: KafkaError | None, now: float) -> None:
        self._metadata.request_topic(state.tp.topic)
        self._pause(state, now)
        if error is not None:
            self._problems.add(state.tp, error, now)

    def _pause(self, state: PartitionState, now: float) -> None:
        state.failures += 1
        state.retry_at = now + self._backoff.seconds(state.failures)


def _described(state: PartitionState, offset: int) -> str:
    """Describe the reset of a position, for the log."""
    assert state.reset is not None
    before = "" if state.reset_from is None else f"from offset {state.reset_from.offset} "
    return f"{state.tp.topic}-{state.tp.partition} {before}to {offset} ({state.reset.strategy})"


def _left_out(state: PartitionState) -> KafkaError:
    return KafkaError(f"the broker's response has no {state.tp.topic}-{state.tp.partition}")


def _present(subscription: SubscriptionState, asked: _Asked, phase: Phase) -> list[PartitionState]:
    """Return the partitions that still wait for this response."""
    return [
        state
        for tp, (state, version) in asked.items()
        if subscription.get(tp) is state and state.version == version and state.phase is phase
    ]
