"""What a consumer reads: topics or partitions, and how far each partition is. Synchronous: no
clock, no waiting, no network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from aioprod.config.offset_reset import OffsetReset
from aioprod.errors import ConsumerStateError, KafkaError
from aioprod.public_module import set_module
from aioprod.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition


class Mode(Enum):
    """How partitions come to a consumer."""

    NONE = auto()
    TOPICS = auto()  # subscribe(["a", "b"])
    PATTERN = auto()  # subscribe(pattern="orders-.*")
    ASSIGNED = auto()  # assign([TopicPartition("a", 0)])


class Phase(Enum):
    """How far a partition is on its way to being read."""

    INITIALIZING = auto()  # no position yet: the committed offset is asked for
    AWAIT_RESET = auto()  # an offset is looked up by the reset strategy
    AWAIT_VALIDATION = auto()  # there is a new leader: is the position in its log? (KIP-320)
    FETCHING = auto()


class Position(NamedTuple):
    """The offset of the next record to hand out, and the leader epoch of the record before it (-1:
    unknown).
    """

    offset: int
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition.

    Attributes:
        version: grows with each jump of the position: what was asked for under another version is
            void.
        awaiting_callback: the listener has not yet been told of the partition: nothing is fetched.
        revoking: the partition is about to be taken away: nothing more is fetched or handed out.
        high_watermark, last_stable_offset, log_start_offset: as the last fetch told, -1 before.
        preferred_replica: the follower that the leader names for reading (KIP-392), -1 for none,
            until loop time ``preferred_until``.
        validated_epoch: the leader's epoch for which the position is known to be right.
        retry_at: loop time before which the next lookup for this partition is not due.
        resets: how often its position was out of range since a leader last had it.
        failure: what the reader is to be told when it gets to this partition; a seek clears it.
    """

    tp: TopicPartition
    phase: Phase = Phase.INITIALIZING
    position: Position | None = None
    reset: OffsetReset | None = None
    version: int = 0
    paused: bool = False
    awaiting_callback: bool = False
    revoking: bool = False
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    preferred_replica: int = -1
    preferred_until: float = 0.0
    validated_epoch: int = -1
    retry_at: float = 0.0
    failures: int = 0
    resets: int = 0
    failure: KafkaError | None = None

    @property
    def may_be_fetched(self) -> bool:
        """Whether records of it may be asked for now."""
        return self.phase is Phase.FETCHING and not (
            self.paused or self.awaiting_callback or self.revoking or self.failure
        )

    @property
    def may_be_handed_out(self) -> bool:
        """Whether buffered records of it may be given to the application now."""
        return self.phase is Phase.FETCHING and not (
            self.paused or self.awaiting_callback or self.revoking
        )

    def jump(self, position: Position) -> None:
        """Read on from another position, which the new leader has to confirm where its epoch is
        known.
        """
        self._leave()
        self.position = position
        self.phase = Phase.FETCHING if position.leader_epoch < 0 else Phase.AWAIT_VALIDATION

    def look_up(self, strategy: OffsetReset) -> None:
        """Have the position looked up, such as the end of the log."""
        self._leave()
        self.position = None
        self.reset = strategy
        self.phase = Phase.AWAIT_RESET

    def found(self, position: Position) -> None:
        """A position is right for the present leader: its records may be fetched."""
        self.position = position
        self.reset = None
        self.phase = Phase.FETCHING
        self.succeeded()

    def validate(self) -> None:
        """There is a new leader: nothing is fetched before it has confirmed the position."""
        if self.phase is Phase.FETCHING:
            self.phase = Phase.AWAIT_VALIDATION
            self.succeeded()

    def succeeded(self) -> None:
        """Something was found out: the next try has no pause before it."""
        self.retry_at, self.failures = 0.0, 0

    def _leave(self) -> None:
        self.version += 1
        self.reset = None
        self.failure = None
        self.preferred_replica = -1
        self.validated_epoch = -1
        self.succeeded()


@set_module("aioprod.consumer")
class RebalanceListener:
    """Base class of listeners of ``subscribe``: override what you need, with plain functions or
    coroutines (``ConsumerRebalanceListener``).

    They run inside ``getone``, ``getmany``, ``async for``, ``unsubscribe`` and ``close``, and may
    call the consumer. What a method raises comes out of that call, after the partitions have been
    taken over or given up: the method is not called again. If it raises CancelledError, and its
    task was not cancelled, that is the cause of a ConsumerStateError. ``wakeup`` does not
    interrupt it.
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """These partitions are new; called before their first record is fetched, so that ``seek``
        is possible.
        """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """These are about to be given up: the last chance to commit. They are still assigned."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """These are another member's already: commits would fail. Calls
        ``on_partitions_revoked`` unless it is overridden, as in Java.
        """
        return self.on_partitions_revoked(partitions)


class SubscriptionState:
    """Topics, partitions and positions of one consumer.

    Args:
        on_change: called after the partitions, a position or a pause has changed.
        on_pause: called with a partition whose records must not be returned now.
        on_drop: called with a partition whose fetched records are void: it was taken away, or its
            position has changed.

    Attributes:
        mode: how partitions are chosen.
        topics: the subscribed topics; with a pattern those that match so far.
        pattern: the subscribed pattern.
        listener: told of partitions that the group gives and takes.
        partitions: the assigned partitions.
    """

    def __init__(
        self,
        on_change: Callable[[], None] = lambda: None,
        on_pause: Callable[[TopicPartition], None] = lambda tp: None,
        on_drop: Callable[[TopicPartition], None] = lambda tp: None,
    ) -> None:
        self.mode = Mode.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | SubscriptionPattern | None = None
        self.listener: RebalanceListener | None = None
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self._on_change = on_change
        self._on_pause = on_pause
        self._on_drop = on_drop

    # -- what is read ------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> None:
        """Read these topics instead of those before; their partitions come by
        :meth:`take_assignment`.

        Raises:
            ConsumerStateError: partitions were assigned by hand, or a pattern is subscribed.
        """
        self._enter(Mode.TOPICS)
        self.topics = frozenset(topics)
        self.listener = listener
        self._on_change()

    def subscribe_pattern(
        self,
        pattern: re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read all topics whose names match; :attr:`topics` are those that did so far.

        Raises:
            ConsumerStateError: partitions were assigned by hand, or names are subscribed.
        """
        self._enter(Mode.PATTERN)
        self.topics = frozenset()
        self.pattern = pattern
        self.listener = listener
        self._on_change()

    def set_matching_topics(self, topics: Iterable[str]) -> None:
        """Take over which topics match the pattern now."""
        self.topics = frozenset(topics)

    def all_topics(self) -> frozenset[str]:
        """Return the subscribed topics and those of assigned partitions."""
        return self.topics | {tp.topic for tp in self.partitions}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; those that stay keep their positions.

        Raises:
            ConsumerStateError: topics are subscribed.
        """
        self._enter(Mode.ASSIGNED)
        self._replace(partitions, awaiting_callback=False)

    def unsubscribe(self) -> None:
        """Read nothing; afterwards each way of reading is possible again."""
        self.mode, self.topics, self.pattern, self.listener = Mode.NONE, frozenset(), None, None
        self._replace((), awaiting_callback=False)

    def take_assignment(
        self, partitions: Iterable[TopicPartition], *, awaiting_callback: bool = False
    ) -> None:
        """Take over the partitions that the group assigns; those that stay keep their positions.

        Args:
            awaiting_callback: new partitions are not fetched before :meth:`release` was called for
                them.
        """
        if self.mode not in (Mode.TOPICS, Mode.PATTERN):
            raise ConsumerStateError("no topics are subscribed: partitions can't be given")
        self._replace(partitions, awaiting_callback=awaiting_callback)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these partitions: the listener was called."""
        for tp in partitions:
            if tp in self.partitions:
                self.partitions[tp].awaiting_callback = False
        self._on_change()

    def begin_revoking(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and return no more records of these. They stay assigned, so that they can be
        committed, until the next assignment.
        """
        for tp in partitions:
            if tp in self.partitions:
                self.partitions[tp].revoking = True

    def _enter(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            names = {
                Mode.TOPICS: "topics are subscribed",
                Mode.PATTERN: "a pattern is subscribed",
                Mode.ASSIGNED: "partitions are assigned",
            }
            raise ConsumerStateError(
                f"{names[self.mode]}: topics, a pattern and assign exclude one another; call "
                "unsubscribe() before"
            )
        self.mode = mode

    def _replace(self, partitions: Iterable[TopicPartition], *, awaiting_callback: bool) -> None:
        before, self.partitions = self.partitions, {}
        for tp in dict.fromkeys(partitions):
            state = (
                before.pop(tp)
                if tp in before
                else PartitionState(tp, awaiting_callback=awaiting_callback)
            )
            state.revoking = False
            self.partitions[tp] = state
        for tp in before:
            self._on_drop(tp)
        self._on_change()

    # -- one partition -----------------------------------------------------------------------------

    def __getitem__(self, tp: TopicPartition) -> PartitionState:
        """The state of an assigned partition.

        Raises:
            ConsumerStateError: it is not assigned.
        """
        state = self.partitions.get(tp)
        if state is None:
            raise ConsumerStateError(f"{tp.topic}-{tp.partition} is not assigned to this consumer")
        return state

    def get(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of a partition, None if it is not assigned."""
        return self.partitions.get(tp)

    def seek(self, tp: TopicPartition, position: Position) -> None:
        """Read on from there; what is buffered of the partition is void."""
        self[tp].jump(position)
        self._on_drop(tp)
        self._on_change()

    def seek_by(self, partitions: Iterable[TopicPartition], strategy: OffsetReset) -> None:
        """Read on from where the strategy leads, such as the end."""
        for state in [self[tp] for tp in partitions]:
            state.look_up(strategy)
            self._on_drop(state.tp)
        self._on_change()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no records of these; what is buffered stays."""
        for state in [self[tp] for tp in partitions]:
            state.paused = True
            self._on_pause(state.tp)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out records of these again."""
        for state in [self[tp] for tp in partitions]:
            state.paused = False
        self._on_change()

    def revalidate(self, tp: TopicPartition) -> None:
        """Return and fetch no records of a partition before its new leader has confirmed the
        position. Its errors are not over before that.
        """
        state = self[tp]
        self._on_pause(tp)
        state.validate()
        self._on_change()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {tp for tp, state in self.partitions.items() if state.paused}

    # -- many partitions ---------------------------------------------------------------------------

    def in_phase(self, phase: Phase) -> list[PartitionState]:
        """The partitions that are so far."""
        return [state for state in self.partitions.values() if state.phase is phase]

    def consumed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions to commit, of all partitions or of some; those without a position are left
        out.
        """
        chosen: Mapping[TopicPartition, PartitionState] = self.partitions
        if partitions is not None:
            chosen = {tp: self.partitions[tp] for tp in partitions if tp in self.partitions}
        return {
            tp: OffsetAndMetadata(s.position.offset, "", s.position.leader_epoch)
            for tp, s in chosen.items()
            if s.position is not None
        }
