"""Checks of a group's history: functions that return its anomalies.

A member owns a partition from the begin of the callback that assigns it to the end of the callback
that revokes it, or the begin of the one that says it is lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from aioprod.types import TopicPartition
from tests.simulation.call_checks import check_call
from tests.simulation.groups.history import (
    ASSIGNED,
    LOST,
    REVOKED,
    Began,
    Committed,
    Committing,
    Ended,
    Event,
    Gone,
    Granted,
    GroupHistory,
    Handed,
    Joined,
    MemberTrace,
    Removed,
    Reported,
    Shared,
    Sought,
    Stored,
    name,
    names,
    span,
)
from tests.simulation.history import OK, Finding

_SLACK_SECONDS = 0.05


def check(history: GroupHistory) -> list[Finding]:
    """Return all anomalies of a history, the most severe first."""
    return [finding for checker in CHECKERS for finding in checker(history)]


class _Ownership:
    """The owner of each partition, updated by each event."""

    def __init__(self) -> None:
        self.of: dict[str, set[TopicPartition]] = defaultdict(set)
        self.gone: set[str] = set()

    def follow(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, Gone):
            self.gone.add(event.member)
            self.of.pop(event.member, None)
        elif isinstance(event, Reported) and event.kind == ASSIGNED:
            self.of[event.member] |= event.partitions
        elif (isinstance(event, Reported) and event.kind == LOST) or (
            isinstance(event, Ended) and event.kind == REVOKED
        ):
            self.of[event.member] -= event.partitions


# -- ownership -------------------------------------------------------------------------------------


def check_shares(history: GroupHistory) -> Iterator[Finding]:
    """Check that no leader, or coordinator, assigns a partition to two members."""
    for event in history.events:
        if isinstance(event, Shared):
            given = Counter(tp for share in event.shares.values() for tp in share)
            for tp, count in given.items():
                if count > 1:
                    yield Finding(
                        "double-assignment",
                        f"{name(tp)} has {count} owners in generation {event.generation}",
                        ("group", name(tp)),
                    )


def check_owners(history: GroupHistory) -> Iterator[Finding]:
    """Check that a member gets a partition only after its owner has given it up, or has missed the
    generation: then the coordinator refuses its commits. The same keeps for a member that gets
    partitions after the group has gone on without it.
    """
    owners = _Ownership()
    joined: dict[int, frozenset[str]] = {}
    for event in history.events:
        if isinstance(event, Joined):
            joined[event.generation] = event.members
        elif isinstance(event, Reported) and event.kind == ASSIGNED:
            if event.member not in joined.get(max(joined, default=-1), {event.member}):
                continue  # it learned of it late: the group has gone on without it
            present = joined.get(event.generation, frozenset())
            for other in sorted(present - {event.member}):
                if _take_over(history, event.member, other):
                    continue
                if both := owners.of[other] & event.partitions:
                    text = f"{event.member} gets {names(frozenset(both))} of {other} in generation"
                    yield Finding(
                        "two-owners",
                        f"{text} {event.generation}, which both have joined",
                        ("group", event.member, other, *map(name, both)),
                    )
        owners.follow(event)


def _take_over(history: GroupHistory, member: str, other: str) -> bool:
    """Return whether a static member gets the partitions of another, which is fenced."""
    instance = history.members[member].instance
    return instance is not None and history.members[other].instance == instance


def check_epoch_owners(history: GroupHistory) -> Iterator[Finding]:
    """Check the same of the consumer protocol, whose members have an epoch each: a member gets
    what the coordinator has granted it, after the owner has given it up or was removed from the
    group. A member that has been removed since it was granted a partition is reported late.
    """
    grants = _Grants()
    for event in history.events if history.epochs else ():
        if isinstance(event, Reported) and event.kind == ASSIGNED:
            member, gets = event.member, event.partitions
            if strange := gets - grants.offered[member]:
                yield Finding(
                    "not-granted",
                    f"{member} gets {names(strange)}, which the coordinator has not granted it",
                    ("group", member, *map(name, strange)),
                )
            for other, kept_back in sorted(grants.kept_back.items()):
                if both := kept_back & gets & grants.valid[member] if other != member else set():
                    yield Finding(
                        "two-owners",
                        f"{member} gets {names(frozenset(both))} of {other}, which is a member and "
                        "has not given it up",
                        ("group", member, other, *map(name, both)),
                    )
        grants.follow(event)


class _Grants:
    """The partitions that a coordinator has assigned to members of the consumer protocol, updated
    by each event.

    Attributes:
        offered: the partitions that each member may have got, whether it is still a member or not.
        valid: the same, without what was offered before the coordinator removed the member.
        kept: the partitions that each member owns as a member of the group.
    """

    def __init__(self) -> None:
        self.offered: dict[str, set[TopicPartition]] = defaultdict(set)
        self.valid: dict[str, set[TopicPartition]] = defaultdict(set)
        self.kept_back: dict[str, set[TopicPartition]] = defaultdict(set)

    def follow(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, Granted):
            self.offered[event.member] |= event.partitions
            self.valid[event.member] |= event.partitions
        elif isinstance(event, Removed | Gone):
            self.valid[event.member].clear()
            self.kept_back[event.member].clear()
        elif isinstance(event, Reported) and event.kind == ASSIGNED:
            self.kept_back[event.member] |= event.partitions & self.valid[event.member]
        elif (isinstance(event, Reported) and event.kind == LOST) or (
            isinstance(event, Ended) and event.kind == REVOKED
        ):
            for each in (self.offered, self.valid, self.kept_back):
                each[event.member] -= event.partitions


def check_callbacks(history: GroupHistory) -> Iterator[Finding]:
    """Check that what is assigned was not owned, and what is revoked or lost was; that an eager
    member owns nothing when it gets partitions; and that nothing is owned after closing.
    """
    owners = _Ownership()
    for event in history.events:
        if isinstance(event, Reported) and event.member not in owners.gone:
            yield from _check_reported(history, event, owners.of[event.member])
        owners.follow(event)
    for member, owned in owners.of.items():
        if owned:
            yield Finding(
                "unbalanced-callbacks",
                f"{member} has ended, and was not informed that it loses {names(frozenset(owned))}",
                (member,),
            )


def _check_reported(
    history: GroupHistory, event: Reported, owned: set[TopicPartition]
) -> Iterator[Finding]:
    wrong = event.partitions & owned if event.kind == ASSIGNED else event.partitions - owned
    text = ""
    if wrong:
        text = f"although it {'had' if event.kind == ASSIGNED else 'did not have'} {names(wrong)}"
    elif event.kind == ASSIGNED and owned and not history.members[event.member].cooperative:
        text = f"although it still owned {names(frozenset(owned))}"
    elif not event.partitions <= event.assignment:
        text = f"but its assignment is {names(event.assignment)}"
    if text:
        yield Finding(
            "unbalanced-callbacks",
            f"{event.member} was informed that {names(event.partitions)} is {event.kind}, {text}",
            (event.member, *map(name, event.partitions)),
        )


# -- reading ---------------------------------------------------------------------------------------


def check_reads(history: GroupHistory) -> Iterator[Finding]:
    """Check that members read what they own, from the committed offset on, without holes, and what
    is in the log.
    """
    reads = _Reads()
    for event in history.events:
        reads.follow(event)
        if isinstance(event, Handed):
            for tp, offset, number in event.records:
                yield from reads.check(event.member, tp, offset)
                if history.logs and history.logs.get(tp, {}).get(offset) != number:
                    yield Finding(
                        "wrong-record",
                        f"{event.member} reads {number} at {name(tp)}@{offset}, where the log has "
                        f"{history.logs.get(tp, {}).get(offset)}",
                        (event.member, name(tp)),
                    )


class _Reads:
    """The next offsets that each member may read."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, int] = {}
        self._next: dict[str, dict[TopicPartition, set[int]]] = defaultdict(dict)
        self._awaited: dict[str, set[TopicPartition]] = defaultdict(set)

    def follow(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, Stored):
            self._committed[event.partition] = event.offset
            for member, awaited in self._awaited.items():
                if event.partition in awaited:
                    self._next[member][event.partition].add(event.offset)
        elif isinstance(event, Reported):
            mine, awaited = self._next[event.member], self._awaited[event.member]
            for tp in event.partitions:
                mine.pop(tp, None)
                awaited.discard(tp)
                if event.kind == ASSIGNED:
                    mine[tp] = {self._committed.get(tp, 0)}
                    awaited.add(tp)
        elif isinstance(event, Sought):
            self._awaited[event.member].discard(event.partition)
            self._next[event.member][event.partition] = {event.offset}

    def check(self, member: str, tp: TopicPartition, offset: int) -> Iterator[Finding]:
        """Check the next record, and take note of it."""
        allowed = self._next[member].get(tp)
        text = f"{member} reads {name(tp)}@{offset}"
        subjects = (member, name(tp))
        if allowed is None:
            yield Finding("unowned-read", f"{text}, which it does not own", subjects)
            return
        if offset not in allowed:
            due = " or ".join(map(str, sorted(allowed)))
            kind = "poll-skip" if offset > max(allowed) else "nonmonotonic-poll"
            yield Finding(kind, f"{text}; due is {due}", subjects)
        self._awaited[member].discard(tp)
        self._next[member][tp] = {offset + 1}


def check_repeats(history: GroupHistory) -> Iterator[Finding]:
    """Check that no record is read twice if members only come and go."""
    if not history.peaceful:
        return
    seen: dict[tuple[TopicPartition, int], str] = {}
    twice: dict[tuple[TopicPartition, str, str], list[int]] = defaultdict(list)
    for event in history.events:
        if isinstance(event, Handed):
            for tp, offset, _ in event.records:
                if (tp, offset) in seen:
                    twice[tp, seen[tp, offset], event.member].append(offset)
                seen[tp, offset] = event.member
    for (tp, first, second), offsets in twice.items():
        yield Finding(
            "needless-duplicate",
            f"{name(tp)}@{span(offsets)} is read by {first} and by {second}, although no member "
            "failed",
            (first, second, name(tp)),
        )


# -- commits ---------------------------------------------------------------------------------------


def check_positions(history: GroupHistory) -> Iterator[Finding]:
    """Check that no committed offset is past what was returned; of automatic commits also not
    past what the member was done with.
    """
    handed: dict[TopicPartition, int] = defaultdict(int)
    returned: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    done: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for event in history.events:
        if isinstance(event, Handed):
            for tp, offset, _ in event.records:
                handed[tp] = max(handed[tp], offset + 1)
                returned[event.member][tp] = offset + 1
        elif isinstance(event, Began):
            done[event.member] = dict(returned[event.member])
        elif isinstance(event, Stored):
            tp, member = event.partition, event.member
            trace = history.members.get(member)
            subjects = (member, name(tp))
            if event.offset > handed[tp]:
                yield Finding(
                    "committed-unread",
                    f"{member} commits {name(tp)}@{event.offset}; read was up to {handed[tp]}",
                    subjects,
                )
            elif (
                trace is not None
                and trace.auto_commit
                and event.offset == returned[member].get(tp)
                and event.offset > done[member].get(tp, event.offset - 1)
            ):
                yield Finding(
                    "committed-unfinished",
                    f"{member} commits {name(tp)}@{event.offset} before the call after the one "
                    "that returned the records",
                    subjects,
                )


def check_progress(history: GroupHistory) -> Iterator[Finding]:
    """Check that committed offsets move back only if a member has read records again on purpose,
    or if a late copy of its own request arrives.
    """
    last: dict[TopicPartition, Stored] = {}
    sought: set[tuple[str, TopicPartition]] = set()
    for event in history.events:
        if isinstance(event, Sought):
            sought.add((event.member, event.partition))
        elif isinstance(event, Stored):
            tp, before = event.partition, last.get(event.partition)
            own_copy = (
                not history.lossless
                and before is not None
                and (before.member, before.generation) == (event.member, event.generation)
            )
            if (
                event.before is not None
                and event.offset < event.before
                and (event.member, tp) not in sought
                and not own_copy
            ):
                yield Finding(
                    "committed-backwards",
                    f"{event.member} commits {name(tp)}@{event.offset} in generation "
                    f"{event.generation} after {event.before}",
                    (event.member, name(tp)),
                )
            last[tp] = event


def check_commits(history: GroupHistory) -> Iterator[Finding]:
    """Check that what a member was asked to be committed is stored. One request may have several
    commits. Of these, the last counts, which may be lower after a seek.
    """
    called: dict[int, tuple[str, dict[TopicPartition, int], dict[TopicPartition, int]]] = {}
    for event in history.events:
        if isinstance(event, Committing):
            called[event.number] = event.member, dict(event.offsets), {}
        elif isinstance(event, Stored | Sought):
            for member, due, stored in called.values():
                if member != event.member:
                    continue
                if isinstance(event, Stored):
                    best = stored.get(event.partition, -1)
                    stored[event.partition] = max(best, event.offset)
                elif event.partition in due:
                    due[event.partition] = min(due[event.partition], event.offset)
        elif isinstance(event, Committed):
            _, due, stored = called.pop(event.number)
            for tp, offset in due.items():
                if event.outcome == OK and stored.get(tp, -1) < offset:
                    yield Finding(
                        "lost-commit",
                        f"{event.member} learned that {name(tp)}@{offset} is committed; stored "
                        f"was {stored.get(tp)}",
                        (event.member, name(tp)),
                    )


# -- calls and the end -----------------------------------------------------------------------------


def check_calls(history: GroupHistory) -> Iterator[Finding]:
    """Check that each call ends within its limit, and that polls raise only what they should."""
    for call in history.calls:
        yield from check_call(history, call, _SLACK_SECONDS)
    for trace in history.members.values():
        for _, text in trace.failures:
            if not _is_refusal_of_instance(trace, text):
                yield Finding("poll-failed", f"{trace.name}: {text}", (trace.name,))


def _is_refusal_of_instance(trace: MemberTrace, text: str) -> bool:
    """Return whether an error says that another member has the ``group_instance_id``. With the
    consumer protocol that may be the member itself, if the response to its join was lost.
    """
    return (trace.may_be_fenced and "FENCED_INSTANCE_ID" in text) or (
        trace.instance is not None and "UNRELEASED_INSTANCE_ID" in text
    )


def check_end(history: GroupHistory) -> Iterator[Finding]:
    """Check that after the last fault everything is read in time, by the members that should."""
    final = history.final
    if final is None:
        yield Finding("not-live", "the run has not come to its end", ("fault",))
        return
    for tp, text in final.unread.items():
        yield Finding(
            "not-live",
            f"{name(tp)}: {text}, {final.limit:.0f} s after the last fault",
            (name(tp), "group"),
        )
    for tp in final.unprobed:
        yield Finding("not-live", f"{name(tp)}: a new record is not read", (name(tp), "group"))
    for member, (read, share) in final.assignments.items():
        if read != share:
            yield Finding(
                "wrong-assignment",
                f"{member} reads {names(read)}; the coordinator says {names(share)}",
                (member, "group"),
            )
    for member, text in final.troubled.items():
        yield Finding("troubled", f"{member}: {text}", (member, "group"))
    for member in final.present:
        if not history.members[member].hurried:
            yield Finding("not-left", f"{member} was closed and is in the group", (member, "group"))


def check_leftovers(history: GroupHistory) -> Iterator[Finding]:
    """Check that no tasks, timers or connections are left, and that the log reports no bug."""
    for trace in history.members.values():
        for leftover in trace.leftovers:
            yield Finding("leak", f"{trace.name}: {leftover}", (trace.name,))
    yield from (Finding("leak", leftover) for leftover in history.leftovers)
    yield from (Finding("fault", line) for line in history.unexpected_log)


CHECKERS: tuple[Callable[[GroupHistory], Iterator[Finding]], ...] = (
    check_shares,
    check_owners,
    check_epoch_owners,
    check_positions,
    check_reads,
    check_progress,
    check_commits,
    check_callbacks,
    check_repeats,
    check_end,
    check_calls,
    check_leftovers,
)
