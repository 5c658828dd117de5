"""The history of a group, as its members and its brokers saw it: plain data, which `checkers.py`
checks after the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from aioprod.types import TopicPartition
from tests.simulation.history import History, Moment

ASSIGNED = "assigned"
REVOKED = "revoked"
LOST = "lost"

Offsets = Mapping[TopicPartition, int]


class Began(NamedTuple):
    """A member begins a call that may wait, with which it is done with the records so far."""

    moment: Moment
    member: str
    name: str


class Handed(NamedTuple):
    """A poll has returned records: partition, offset, and the number in the value."""

    moment: Moment
    member: str
    records: tuple[tuple[TopicPartition, int, int], ...]


class Reported(NamedTuple):
    """A listener's callback begins.

    Attributes:
        kind: ``ASSIGNED``, ``REVOKED`` or ``LOST``.
        generation: the generation of the member's assignment.
        assignment: the assigned partitions at this moment.
    """

    moment: Moment
    member: str
    kind: str
    partitions: frozenset[TopicPartition]
    generation: int
    assignment: frozenset[TopicPartition]


class Ended(NamedTuple):
    """A listener's callback has ended."""

    moment: Moment
    member: str
    kind: str
    partitions: frozenset[TopicPartition]


class Sought(NamedTuple):
    """A member continues a partition at another offset."""

    moment: Moment
    member: str
    partition: TopicPartition
    offset: int


class Gone(NamedTuple):
    """A member has died: what it does later does not count."""

    moment: Moment
    member: str


class Committing(NamedTuple):
    """A member calls ``commit`` or ``commit_async``; ``number`` identifies the call."""

    moment: Moment
    member: str
    number: int
    offsets: Offsets


class Committed(NamedTuple):
    """The commit with this number has ended, with ``OK`` or an error's name."""

    moment: Moment
    member: str
    number: int
    outcome: str


class Stored(NamedTuple):
    """The coordinator has stored an offset.

    Attributes:
        before: the offset that was stored before, None for the first.
    """

    moment: Moment
    member: str
    generation: int
    partition: TopicPartition
    offset: int
    before: int | None


class Joined(NamedTuple):
    """A generation has begun, with these members, which have joined it."""

    moment: Moment
    generation: int
    members: frozenset[str]


class Shared(NamedTuple):
    """The leader of a generation has sent the assignment: partitions by member. With the consumer
    protocol: the coordinator has made the targets of an epoch, or members keep other partitions.
    """

    moment: Moment
    generation: int
    shares: Mapping[str, frozenset[TopicPartition]]


class Granted(NamedTuple):
    """The coordinator has answered a heartbeat of the consumer protocol with these partitions: the
    member may read them.
    """

    moment: Moment
    member: str
    epoch: int
    partitions: frozenset[TopicPartition]


class Removed(NamedTuple):
    """The coordinator of the consumer protocol has removed a member, or takes it for a new one, or
    for a static one that is away: it may grant its partitions to others, and refuses its commits.
    """

    moment: Moment
    member: str


Event = (
    Began
    | Handed
    | Reported
    | Ended
    | Sought
    | Gone
    | Committing
    | Committed
    | Stored
    | Joined
    | Shared
    | Granted
    | Removed
)


@dataclass(slots=True)
class MemberTrace:
    """A member.

    Attributes:
        auto_commit: whether it commits automatically.
        cooperative: whether it keeps its partitions during a rebalance.
        instance: its ``group_instance_id``, which a later member takes over.
        may_be_fenced: whether another member has its ``group_instance_id``.
        hurried: whether it had no time to leave the group.
        failures: errors of polls that the application did not cause.
        leftovers: tasks and sockets that were left after closing.
    """

    name: str
    auto_commit: bool = False
    cooperative: bool = False
    instance: str | None = None
    may_be_fenced: bool = False
    hurried: bool = False
    failures: list[tuple[Moment, str]] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FinalState:
    """The group after the last fault, when everything should be read.

    Attributes:
        repaired: when the last fault was repaired.
        limit: seconds within which everything is to be read and committed.
        unread: partitions of subscribed topics that were not committed up to their end then, with
            what is known about them.
        assignments: the partitions that each member reads, and those that the coordinator gave it.
        troubled: members whose state is not that of a reader, with their state.
        unprobed: partitions whose last record was not read at once.
        present: dynamic members that the coordinator still has after all have left.
    """

    repaired: Moment
    limit: float
    unread: dict[TopicPartition, str] = field(default_factory=dict)
    assignments: dict[str, tuple[frozenset[TopicPartition], frozenset[TopicPartition]]] = field(
        default_factory=dict
    )
    troubled: dict[str, str] = field(default_factory=dict)
    unprobed: list[TopicPartition] = field(default_factory=list)
    present: list[str] = field(default_factory=list)


@dataclass(slots=True)
class GroupHistory(History):
    """The history of a group.

    Attributes:
        members: the members by name.
        events: everything that happened, in order.
        logs: the numbers of all records by partition and offset, at the end of the run.
        epochs: whether members have epochs (KIP-848), not the generation of a classic group.
        peaceful: whether nothing happened that may cause a record to be read twice.
        lossless: whether requests are handled in the order in which they were sent.
        final: the group after the last fault; None if the run has not come that far.
    """

    members: dict[str, MemberTrace] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    logs: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    epochs: bool = False
    peaceful: bool = False
    lossless: bool = False
    final: FinalState | None = None

    # -- events of members -------------------------------------------------------------------------

    def began(self, member: str, name: str) -> None:
        """Record that a call begins."""
        self.events.append(Began(self.note(f"{member}: {name} ...", member), member, name))

    def handed(self, member: str, records: list[tuple[TopicPartition, int, int]]) -> None:
        """Record what a poll has returned."""
        spans: dict[TopicPartition, list[int]] = {}
        for tp, offset, _ in records:
            spans.setdefault(tp, []).append(offset)
        text = ", ".join(f"{name(tp)}@{span(found)}" for tp, found in spans.items())
        moment = self.note(f"{member} reads {text}", member, *map(name, spans))
        self.events.append(Handed(moment, member, tuple(records)))

    def reported(
        self,
        member: str,
        kind: str,
        partitions: frozenset[TopicPartition],
        generation: int,
        assignment: frozenset[TopicPartition],
    ) -> None:
        """Record that a callback begins."""
        text = f"{member}: {kind} {names(partitions)} in generation {generation} ..."
        moment = self.note(text, member, *map(name, partitions))
        self.events.append(Reported(moment, member, kind, partitions, generation, assignment))

    def ended(self, member: str, kind: str, partitions: frozenset[TopicPartition]) -> None:
        """Record that a callback has ended."""
        moment = self.note(f"{member}: {kind} ends", member, *map(name, partitions))
        self.events.append(Ended(moment, member, kind, partitions))

    def sought(self, member: str, partition: TopicPartition, offset: int) -> None:
        """Record a seek."""
        moment = self.note(f"{member} seeks {name(partition)}@{offset}", member, name(partition))
        self.events.append(Sought(moment, member, partition, offset))

    def gone(self, member: str) -> None:
        """Record that a member dies."""
        self.events.append(Gone(self.note(f"{member} dies", member), member))

    def committing(self, member: str, offsets: Offsets) -> int:
        """Record that a commit is called; return its number."""
        number = len(self.events)
        text = f"{member} commits {number}: {places(offsets)}"
        moment = self.note(text, member, *map(name, offsets))
        self.events.append(Committing(moment, member, number, dict(offsets)))
        return number

    def committed(self, member: str, number: int, outcome: str) -> None:
        """Record that a commit has ended."""
        moment = self.note(f"{member}: commit {number} ends: {outcome}", member)
        self.events.append(Committed(moment, member, number, outcome))

    def poll_failed(self, trace: MemberTrace, text: str) -> None:
        """Record an error of a poll that the application did not cause."""
        trace.failures.append((self.note(f"{trace.name}: {text}", trace.name), text))

    # -- events of brokers -------------------------------------------------------------------------

    def offset_stored(
        self,
        member: str,
        generation: int,
        partition: TopicPartition,
        offset: int,
        before: int | None,
    ) -> None:
        """Record that the coordinator has stored an offset."""
        text = f"stored {name(partition)}@{offset} by {member} in generation {generation}"
        moment = self.note(text, member, name(partition))
        self.events.append(Stored(moment, member, generation, partition, offset, before))

    def joined(self, generation: int, members: frozenset[str]) -> None:
        """Record that a generation has begun."""
        text = f"generation {generation} begins with {', '.join(sorted(members))}"
        self.events.append(Joined(self.note(text, "group", *members), generation, members))

    def shared(
        self,
        generation: int,
        shares: Mapping[str, frozenset[TopicPartition]],
        what: str = "is shared out",
    ) -> None:
        """Record an assignment."""
        text = "; ".join(f"{member}: {names(given)}" for member, given in sorted(shares.items()))
        moment = self.note(f"generation {generation} {what}: {text}", "group", *shares)
        self.events.append(Shared(moment, generation, dict(shares)))

    def granted(self, member: str, epoch: int, partitions: frozenset[TopicPartition]) -> None:
        """Record the partitions in the response to a heartbeat."""
        text = f"granted to {member} in epoch {epoch}: {names(partitions)}"
        moment = self.note(text, "group", member, *map(name, partitions))
        self.events.append(Granted(moment, member, epoch, partitions))

    def removed(self, member: str, text: str) -> None:
        """Record that the coordinator has removed a member."""
        self.events.append(Removed(self.note(f"{member} {text}", "group", member), member))


def name(tp: TopicPartition) -> str:
    """Return a partition's name."""
    return f"{tp.topic}-{tp.partition}"


def names(partitions: frozenset[TopicPartition]) -> str:
    """Return the names of partitions."""
    return " ".join(map(name, sorted(partitions))) or "nothing"


def places(offsets: Offsets) -> str:
    """Return offsets as text."""
    return " ".join(f"{name(tp)}@{offset}" for tp, offset in sorted(offsets.items())) or "nothing"


def span(offsets: list[int]) -> str:
    """Return the first and the last of some offsets."""
    return str(offsets[0]) if len(offsets) == 1 else f"{offsets[0]}-{offsets[-1]}"
