"""The history of a share group: what the broker did with each record, what members got and said of
it, and what was reported to them. Plain data; ``checkers.py`` judges it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from aioprod.testing.broker.share_groups.records import Acknowledge
from tests.simulation.history import History, Moment

Place = tuple[str, int, int]
"""The topic, the partition and the offset of a record."""


class Reason(StrEnum):
    """The reason why the broker took a record from a member that had not acknowledged it."""

    LOCK = "lock"  # timed out
    SESSION = "session"  # ended, or its connection has
    LEADER = "leader"  # another one leads the partition


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a record. For an event of the broker, the member is the one that it concerns."""

    member: str
    place: Place


@dataclass(frozen=True, slots=True)
class Acquired(Event):
    """The broker locks a record for a member."""

    delivery: int

    def __str__(self) -> str:
        return f"acquired, delivery {self.delivery}"


@dataclass(frozen=True, slots=True)
class Applied(Event):
    """The broker does what a member said of a record that it has."""

    kind: Acknowledge

    def __str__(self) -> str:
        return f"{self.kind.name} is applied"


@dataclass(frozen=True, slots=True)
class Late(Event):
    """The broker gets an acknowledgement of a record that the member does not have."""

    def __str__(self) -> str:
        return "an acknowledgement is too late"


@dataclass(frozen=True, slots=True)
class Freed(Event):
    """The broker takes a record from a member."""

    reason: Reason

    def __str__(self) -> str:
        return f"lost, because of the {self.reason}"


@dataclass(frozen=True, slots=True)
class Dead(Event):
    """No member gets a record again: it was rejected, or delivered too often."""

    delivery: int
    is_rejected: bool

    def __str__(self) -> str:
        return f"{'rejected' if self.is_rejected else 'dead'} after {self.delivery} deliveries"


@dataclass(frozen=True, slots=True)
class Handed(Event):
    """An application gets a record."""

    delivery: int

    def __str__(self) -> str:
        return f"returned, delivery {self.delivery}"


@dataclass(frozen=True, slots=True)
class Said(Event):
    """An application acknowledges a record, or allows the client to accept it (implicit mode)."""

    kind: Acknowledge

    def __str__(self) -> str:
        return f"says {self.kind.name}"


@dataclass(frozen=True, slots=True)
class Reported(Event):
    """An application is called with the outcome of an acknowledgement: None if it is confirmed."""

    error: str | None

    def __str__(self) -> str:
        return "confirmed" if self.error is None else f"failed, {self.error}"


@dataclass(slots=True)
class MemberTrace:
    """The history of one member.

    Attributes:
        explicit: whether it acknowledges each record.
        renews: for how many seconds its client renews locks.
        dies: whether it leaves without a word.
        failures: errors of calls that should not fail.
        leftovers: tasks and sockets that were left after closing.
    """

    name: str
    explicit: bool = False
    renews: float = 0.0
    dies: bool = False
    failures: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FinalState:
    """The time after the last fault, in which everything should be done.

    Attributes:
        repaired: when the last fault had ended.
        limit: how long the group had for the rest, in seconds.
        cut: when all connections were cut for the last time.
        calm: when the members had recovered from all that.
        undone: the records that the group was not done with after that.
        kept: the members that are closed, for which records are locked.
    """

    repaired: Moment
    limit: float
    cut: Moment | None = None
    calm: Moment | None = None
    undone: list[Place] = field(default_factory=list)
    kept_back: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ShareHistory(History):
    """The history of a run.

    Attributes:
        delivery_limit: ``share.delivery.count.limit``.
        lock_s: how long records are locked, in seconds.
        events: the events of records, in the order of time.
        logged: all records.
        final: None if the run has not come to its end.
    """

    delivery_limit: int = 5
    lock_s: float = 30.0
    members: dict[str, MemberTrace] = field(default_factory=dict)
    events: list[tuple[Moment, Event]] = field(default_factory=list)
    logged: set[Place] = field(default_factory=set)
    final: FinalState | None = None

    def add(self, event: Event) -> None:
        """Note an event."""
        subject = name(event.place)
        moment = self.note(f"{event.member}: {subject} {event}", subject, event.member)
        self.events.append((moment, event))


def name(place: Place) -> str:
    """Return a place as text."""
    return f"{place[0]}-{place[1]}@{place[2]}"
