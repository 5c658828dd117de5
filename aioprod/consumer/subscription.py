"""The subscription of a consumer: topics or partitions, and the state of each partition.
Synchronous: no clock, no waiting, no network.
"""

import re
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from aioprod.config.offset_reset import OffsetReset
from aioprod.consumer.rebalance_listener import RebalanceListener
from aioprod.errors import ConsumerStateError, KafkaError
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition


class Mode(Enum):
    """The way in which a consumer gets its partitions."""

    NONE = auto()
    TOPICS = auto()  # subscribe(["a", "b"])
    PATTERN = auto()  # subscribe(pattern="orders-.*")
    ASSIGNED = auto()  # assign([TopicPartition("a", 0)])


class Phase(Enum):
    """The step before a partition can be read."""

    INITIALIZING = auto()  # no position yet: the committed offset is fetched
    AWAIT_RESET = auto()  # the reset strategy looks up an offset
    AWAIT_VALIDATION = auto()  # a new leader has to confirm the position (KIP-320)
    FETCHING = auto()


class Position(NamedTuple):
    """The offset of the next record to return, and the leader epoch of the record before it (-1 if
    unknown).
    """

    offset: int
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class FormerTopic:
    """The deleted topic that a partition was read from before its topic was created again.

    Attributes:
        topic_id: its id.
        offset: the position in it, -1 if none was known.
        resumed_at: the first position in the new topic, -1 before it is known.
    """

    topic_id: uuid.UUID
    offset: int
    resumed_at: int = -1


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition.

    Attributes:
        reset_from: the position before the lookup by ``reset``, if there was one.
        version: grows with each jump of the position; responses to requests of an earlier version
            are void.
        pause_reason: why the application has paused it, if it says so.
        awaiting_callback: the listener was not called for the partition yet: nothing is fetched.
        revoking: the partition is about to be revoked: nothing is fetched or returned.
        high_watermark, last_stable_offset, log_start_offset: as of the last fetch, -1 before.
        preferred_replica: the follower that the leader names for reading (KIP-392), -1 for none,
            until loop time ``preferred_until``.
        validated_epoch: the leader's epoch for which the position is validated.
        retry_at: loop time before which no lookup for this partition is due.
        resets: how often its position was out of range since the last successful fetch.
        fetch_bytes: the size that its next fetch asks for, as the last ones were full; 0 for
            ``max_partition_fetch_bytes``.
        fetch: its part of the last request for it; responses to others are void.
        failure: raised when this partition is read; a seek clears it.
        topic_id: the topic that the position belongs to (KIP-516); zero until the next metadata.
        former: the deleted topic that it was read from before, until a seek.
    """

    tp: TopicPartition
    phase: Phase = Phase.INITIALIZING
    position: Position | None = None
    reset: OffsetReset | None = None
    reset_from: Position | None = None
    version: int = 0
    paused: bool = False
    pause_reason: str = ""
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
    fetch_bytes: int = 0
    fetch: object = None
    failure: KafkaError | None = None
    topic_id: uuid.UUID = ZERO_UUID
    former: FormerTopic | None = None

    @property
    def may_be_fetched(self) -> bool:
        """True if records of it may be fetched now."""
        return self.phase is Phase.FETCHING and not (
            self.paused or self.awaiting_callback or self.revoking or self.failure
        )

    @property
    def may_be_returned(self) -> bool:
        """True if buffered records of it may be returned now."""
        return self.phase is Phase.FETCHING and not (
            self.paused or self.awaiting_callback or self.revoking
        )

    @property
    def offset(self) -> int:
        """The offset of the position, -1 if there is none."""
        return -1 if self.position is None else self.position.offset

    def jump(self, position: Position) -> None:
        """Continue at another position. If its leader epoch is known, the leader has to confirm it
        first.
        """
        self._leave()
        self.position = position
        self.phase = Phase.FETCHING if position.leader_epoch < 0 else Phase.AWAIT_VALIDATION

    def look_up(self, strategy: OffsetReset) -> None:
        """Look the position up by a strategy, such as the end of the log."""
        self.reset_from = self.position or self.reset_from
        self._leave()
        self.position = None
        self.reset = strategy
        self.phase = Phase.AWAIT_RESET

    def give_up(self, failure: KafkaError) -> None:
        """Have no position until a seek: reading raises ``failure``."""
        self._leave()
        self.position = None
        self.phase = Phase.INITIALIZING
        self.failure = failure

    def is_of_former_topic(self, offset: int) -> bool:
        """Return whether the application can have an offset only from the topic that was deleted:
        it has got no record of the new one.
        """
        former, position = self.former, self.position
        if former is None:
            return False
        return position is None or position.offset == former.resumed_at != offset

    def found(self, position: Position) -> None:
        """Note that the position is valid for the current leader: records may be fetched."""
        self.position = position
        self.reset = self.reset_from = None
        self.phase = Phase.FETCHING
        self.succeeded()

    def validate(self) -> None:
        """Fetch nothing until the new leader has confirmed the position."""
        if self.phase is Phase.FETCHING:
            self.phase = Phase.AWAIT_VALIDATION
            self.succeeded()

    def succeeded(self) -> None:
        """Note a successful lookup: the next attempt follows without backoff."""
        self.retry_at, self.failures = 0.0, 0

    def _leave(self) -> None:
        self.version += 1
        self.reset = None
        self.failure = None
        self.preferred_replica = -1
        self.validated_epoch = -1
        self.fetch_bytes = 0
        self.topic_id = ZERO_UUID
        self.former = None
        self.succeeded()


def _no_listener() -> None:
    """Return None, as a weak reference to a listener that is gone."""


class SubscriptionState:
    """Topics, partitions and positions of one consumer.

    Args:
        on_change: called after the partitions, a position or a pause has changed.
        on_pause: called with a partition whose records must not be returned now.
        on_drop: called with a partition whose fetched records are void: it was revoked, or its
            position has changed.

    Attributes:
        mode: how partitions are chosen.
        topics: the subscribed topics; with a pattern those that match so far.
        pattern: the subscribed pattern.
        listener: returns the object called when partitions are assigned, revoked or lost. The
            reference is weak: the listener often refers to its Consumer, and tasks refer to this
            object, so a Consumer that is dropped would otherwise never be released.
        partitions: the assigned partitions.
    """

    def __init__(
        self,
        on_change: Callable[[], None] = lambda: None,
        on_pause: Callable[[TopicPartition], None] = lambda tp: None,
        on_drop: Callable[[TopicPartition], None] = lambda tp: None,
    ) -> None:
        self.mode: Mode = Mode.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | SubscriptionPattern | None = None
        self.listener: Callable[[], RebalanceListener | None] = _no_listener
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self._on_change = on_change
        self._on_pause = on_pause
        self._on_drop = on_drop

    # -- topics and partitions ---------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> None:
        """Read these topics in place of earlier ones. :meth:`take_assignment` sets their
        partitions.

        Raises:
            ConsumerStateError: if ``assign`` was called, or a pattern is subscribed.
        """
        self._enter(Mode.TOPICS)
        self.topics = frozenset(topics)
        self.listener = weakref.ref(listener) if listener is not None else _no_listener
        self._on_change()

    def subscribe_pattern(
        self,
        pattern: re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read all topics whose names match. :attr:`topics` has those that are known to match.

        Raises:
            ConsumerStateError: if ``assign`` was called, or names are subscribed.
        """
        self._enter(Mode.PATTERN)
        self.topics = frozenset()
        self.pattern = pattern
        self.listener = weakref.ref(listener) if listener is not None else _no_listener
        self._on_change()

    def set_matching_topics(self, topics: Iterable[str]) -> None:
        """Set the topics that match the pattern now."""
        self.topics = frozenset(topics)

    def all_topics(self) -> frozenset[str]:
        """Return the subscribed topics and those of assigned partitions."""
        return self.topics | {tp.topic for tp in self.partitions}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; those that stay keep their positions.

        Raises:
            ConsumerStateError: if topics are subscribed.
        """
        self._enter(Mode.ASSIGNED)
        self._replace(partitions, awaiting_callback=False)

    def unsubscribe(self) -> None:
        """Read nothing. Afterwards ``subscribe`` and ``assign`` are possible."""
        self.mode, self.topics, self.pattern = Mode.NONE, frozenset(), None
        self.listener = _no_listener
        self._replace((), awaiting_callback=False)

    def take_assignment(
        self, partitions: Iterable[TopicPartition], *, awaiting_callback: bool = False
    ) -> None:
        """Adopt the partitions that the group assigns; those that stay keep their positions.

        Args:
            awaiting_callback: whether new partitions are not fetched before :meth:`release`.
        """
        if self.mode not in (Mode.TOPICS, Mode.PATTERN):
            raise ConsumerStateError("no topics are subscribed: no partitions can be assigned")
        self._replace(partitions, awaiting_callback=awaiting_callback)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Allow fetching of these partitions: the listener was called."""
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
                "unsubscribe() first"
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
        """Return the state of an assigned partition.

        Raises:
            ConsumerStateError: if it is not assigned.
        """
        state = self.partitions.get(tp)
        if state is None:
            raise ConsumerStateError(f"{tp.topic}-{tp.partition} is not assigned to this consumer")
        return state

    def get(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of a partition, None if it is not assigned."""
        return self.partitions.get(tp)

    def seek(self, tp: TopicPartition, position: Position) -> None:
        """Continue at a position, and drop the buffered records of the partition."""
        self[tp].jump(position)
        self._on_drop(tp)
        self._on_change()

    def seek_by(self, partitions: Iterable[TopicPartition], strategy: OffsetReset) -> None:
        """Continue at the offset that the strategy finds, such as the end."""
        for state in [self[tp] for tp in partitions]:
            state.look_up(strategy)
            self._on_drop(state.tp)
        self._on_change()

    def pause(self, partitions: Iterable[TopicPartition], reason: str = "") -> None:
        """Return no records of these; buffered records are kept."""
        for state in [self[tp] for tp in partitions]:
            state.paused = True
            state.pause_reason = reason
            self._on_pause(state.tp)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these again."""
        for state in [self[tp] for tp in partitions]:
            state.paused = False
            state.pause_reason = ""
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
        """Return the paused partitions."""
        return {tp for tp, state in self.partitions.items() if state.paused}

    # -- many partitions ---------------------------------------------------------------------------

    def in_phase(self, phase: Phase) -> list[PartitionState]:
        """Return the partitions in this phase."""
        return [state for state in self.partitions.values() if state.phase is phase]

    def consumed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions to commit, of all partitions or of these. Partitions without a
        position are left out.
        """
        chosen: Mapping[TopicPartition, PartitionState] = self.partitions
        if partitions is not None:
            chosen = {tp: self.partitions[tp] for tp in partitions if tp in self.partitions}
        return {
            tp: OffsetAndMetadata(s.position.offset, "", s.position.leader_epoch)
            for tp, s in chosen.items()
            if s.position is not None
        }
