"""What happened in one run, told by the clients' side: who sent what, what came of it, what was
read, what took how long.

Plain data: the checkers (`checkers.py`) judge it afterwards, and unit tests make histories up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from aioprod.types import Headers, TopicPartition

READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"
FLUSH = "flush"
OK = "ok"
CANCELLED = "cancelled"


class Moment(NamedTuple):
    """A point of the history: its place in the order of all that was noted, and the time in seconds
    of the loop's clock.
    """

    order: int
    at: float


class Promise(Enum):
    """What a producer's settings promise of a record that was acknowledged."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    UNLESS_LEADER_DIES = "at least once, unless its leader dies"
    NOTHING = "nothing"


class Content(NamedTuple):
    """What a record is made of."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None, headers: Headers) -> Content:
        """The same, with the headers as a tuple."""
        return cls(key, value, tuple(headers))


class Place(NamedTuple):
    """Where a record is said or found to be."""

    partition: TopicPartition
    offset: int


@dataclass(slots=True)
class SentRecord:
    """One record and what became of it.

    Attributes:
        number: unique in the run.
        producer: the name of the producer that was given it.
        partition: the partition that was asked for; None where the producer had the choice.
        called: when `send` was called.
        transaction: the number of the producer's transaction that it was sent in.
        returned: when `send` came back, be it with an error; None where it never did.
        refusal: what `send` raised. The record must not be in the log, unless it is ``CANCELLED``:
            then nobody knows.
        resolved: when its delivery got its outcome.
        place: where the acknowledgement says it is; offset -1 where it does not say.
        error: what its delivery failed with.
        never_left: whether that error says that it was never sent to a broker.
        waits: how many times the call that it belongs to may wait for max.block.ms: for each of its
            records, and its turn.
    """

    number: int
    producer: str
    topic: str
    content: Content
    partition: int | None
    called: Moment
    transaction: int | None = None
    returned: Moment | None = None
    refusal: str | None = None
    resolved: Moment | None = None
    place: Place | None = None
    error: str | None = None
    never_left: bool = False
    waits: int = 1

    @property
    def taken(self) -> bool:
        """Whether `send` has returned: there is a delivery."""
        return self.returned is not None and self.refusal is None

    @property
    def acknowledged(self) -> bool:
        """Whether the producer said that the broker has it."""
        return self.place is not None

    @property
    def forbidden(self) -> bool:
        """Whether it is certain that it was never given to a broker."""
        return self.never_left or self.refusal not in (None, CANCELLED)


class Ending(Enum):
    """How a transaction ended, as far as its producer could tell."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class TransactionTrace:
    """One transaction of one producer.

    Attributes:
        commit_called: when its commit was asked for first; None where it never was.
        ended: when its ending was known.
        group_position: the position that it commits for a consumer group; None where it commits
            none. They grow with each transaction of an id.
    """

    producer: str
    number: int
    begun: Moment
    ending: Ending = Ending.OPEN
    commit_called: Moment | None = None
    ended: Moment | None = None
    group_position: int | None = None


class Read(NamedTuple):
    """One record that a reader got; ``number`` is None where its content is none that was sent."""

    moment: Moment
    offset: int
    number: int | None


@dataclass(slots=True)
class Reading:
    """What one reader got of one partition, in its order.

    Attributes:
        final: whether it read the whole log after everything had ended.
        start: the first offset that it asked for.
        failure: what it ended with, where it did not end by itself.
    """

    name: str
    partition: TopicPartition
    isolation: str
    final: bool = False
    start: int = 0
    reads: list[Read] = field(default_factory=list)
    failure: str | None = None


@dataclass(slots=True)
class CallTrace:
    """One call with a limit on its time, such as a flush.

    Attributes:
        limit: seconds that it may take.
        must_succeed: whether nothing entitles it to fail.
        ended: when it was over; None where it never was.
        outcome: ``OK``, ``CANCELLED`` or the error's name.
    """

    name: str
    owner: str
    begun: Moment
    limit: float
    must_succeed: bool = False
    ended: Moment | None = None
    outcome: str | None = None


@dataclass(slots=True)
class ProducerTrace:
    """What is known of one producer.

    Attributes:
        ordered: whether its settings promise the order of the calls of `send` per partition.
        delivery_limit: seconds within which every delivery has an outcome.
        send_limit: seconds within which `send` comes back.
        may_be_fatal: whether anything that was done to it entitles it to a fatal error.
        fatal: the error after which it could not go on.
        leftovers: what it held when it was closed: bytes, batches, tasks.
    """

    name: str
    promise: Promise
    ordered: bool
    delivery_limit: float
    send_limit: float
    may_be_fatal: bool = False
    transactional_id: str | None = None
    fatal: str | None = None
    leftovers: list[str] = field(default_factory=list)


class Line(NamedTuple):
    """One line of the trace: ``subjects`` are what it is about, such as ``record 17``."""

    moment: Moment
    text: str
    subjects: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.moment.order:6d} {self.moment.at:10.6f}  {self.text}"


@dataclass(slots=True)
class History:
    """All of one run.

    Attributes:
        suspensions: when the whole process stood still, and for how many seconds: nobody can keep a
            limit meanwhile.
        leader_died: whether a node was killed without a warning, which may cost records that only
            it had.
        group_positions: per transactional id the position that the broker has at the end, where
            there is one.
        stored: per partition offset and number of all records as the broker has them at the end,
            without asking a client.
        leftovers: what was left when all was closed: tasks, connections, callbacks that failed.
        unexpected_log: lines of the log that tell of a fault of the library.
    """

    clock: Callable[[], float]
    records: list[SentRecord] = field(default_factory=list)
    transactions: list[TransactionTrace] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    calls: list[CallTrace] = field(default_factory=list)
    producers: dict[str, ProducerTrace] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    suspensions: list[tuple[float, float]] = field(default_factory=list)
    leader_died: bool = False
    group_positions: dict[str, int] = field(default_factory=dict)
    stored: dict[TopicPartition, list[tuple[int, int | None]]] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    unexpected_log: list[str] = field(default_factory=list)
    _by_content: dict[Content, int] = field(default_factory=dict)

    def note(self, text: str, *subjects: str) -> Moment:
        """Write a line of the trace and return its moment."""
        moment = Moment(len(self.lines), self.clock())
        self.lines.append(Line(moment, text, subjects))
        return moment

    def digest(self) -> str:
        """A short sum over all lines: the same for the same seed."""
        sums = hashlib.blake2b(digest_size=8)
        for line in self.lines:
            sums.update(str(line).encode())
        return sums.hexdigest()

    def about(self, subjects: tuple[str, ...]) -> Iterator[Line]:
        """The lines about any of these."""
        wanted = set(subjects)
        return (line for line in self.lines if wanted.intersection(line.subjects))

    def duration(self, begun: Moment, ended: Moment) -> float:
        """The seconds between two moments in which the process could do something."""
        return (
            ended.at
            - begun.at
            - sum(seconds for at, seconds in self.suspensions if begun.at <= at <= ended.at)
        )

    # -- records -----------------------------------------------------------------------------------

    def send(
        self,
        producer: str,
        topic: str,
        content: Content,
        partition: int | None,
        transaction: int | None,
    ) -> SentRecord:
        """A call of `send` begins."""
        number = len(self.records)
        where = topic if partition is None else f"{topic}-{partition}"
        record = SentRecord(
            number, producer, topic, content, partition, Moment(0, 0.0), transaction
        )
        record.called = self.note(
            f"{producer} sends record {number} to {where}", f"record {number}"
        )
        self.records.append(record)
        self._by_content[content] = number
        return record

    def begins(self, record: SentRecord) -> None:
        """The task that calls `send` runs."""
        record.called = self.note(
            f"record {record.number} is given to its producer", f"record {record.number}"
        )

    def taken(self, record: SentRecord) -> None:
        """`send` has returned."""
        record.returned = self.note(f"record {record.number} is taken", f"record {record.number}")

    def refused(self, record: SentRecord, refusal: str) -> None:
        """`send` has raised."""
        record.refusal = refusal
        record.returned = self.note(
            f"record {record.number} is not taken: {refusal}", f"record {record.number}"
        )

    def acknowledged(self, record: SentRecord, place: Place) -> None:
        """The delivery has succeeded."""
        record.place = place
        where = f"{place.partition.topic}-{place.partition.partition}@{place.offset}"
        record.resolved = self._resolved(
            record, f"record {record.number} is acknowledged at {where}"
        )

    def failed(self, record: SentRecord, error: str, *, never_left: bool) -> None:
        """The delivery has failed."""
        record.error, record.never_left = error, never_left
        record.resolved = self._resolved(record, f"record {record.number} fails: {error}")

    def _resolved(self, record: SentRecord, text: str) -> Moment:
        if record.resolved is not None:
            self.leftovers.append(f"record {record.number} has two outcomes")
        return self.note(text, f"record {record.number}")

    def number_of(self, content: Content) -> int | None:
        """Which record this is; None where nobody sent such a one."""
        return self._by_content.get(content)

    # -- the rest ----------------------------------------------------------------------------------

    def begin(self, producer: str, number: int) -> TransactionTrace:
        """A transaction is open."""
        moment = self.note(
            f"{producer} begins transaction {number}", producer, f"{producer} transaction {number}"
        )
        trace = TransactionTrace(producer, number, moment)
        self.transactions.append(trace)
        return trace

    def end(self, trace: TransactionTrace, ending: Ending) -> None:
        """A transaction is over, or its producer will never know."""
        trace.ending = ending
        subject = f"{trace.producer} transaction {trace.number}"
        trace.ended = self.note(f"{subject} is {ending.value}", trace.producer, subject)

    def asks_commit(self, trace: TransactionTrace) -> None:
        """The commit of a transaction is called."""
        subject = f"{trace.producer} transaction {trace.number}"
        moment = self.note(f"{subject}: commit is called", trace.producer, subject)
        trace.commit_called = trace.commit_called or moment

    def call(self, owner: str, name: str, limit: float, *, must_succeed: bool = False) -> CallTrace:
        """A call with a limit begins."""
        trace = CallTrace(
            name, owner, self.note(f"{owner}: {name} ...", owner), limit, must_succeed
        )
        self.calls.append(trace)
        return trace

    def returned(self, trace: CallTrace, outcome: str) -> None:
        """It is over."""
        trace.outcome = outcome
        trace.ended = self.note(f"{trace.owner}: {trace.name} is over: {outcome}", trace.owner)

    def read(self, reading: Reading, offset: int, content: Content) -> None:
        """A reader has got a record."""
        number = self.number_of(content)
        subject = f"record {number}" if number is not None else "a foreign record"
        where = f"{reading.partition.topic}-{reading.partition.partition}@{offset}"
        reading.reads.append(
            Read(self.note(f"{reading.name} reads {subject} at {where}", subject), offset, number)
        )


def error_name(error: BaseException) -> str:
    """The error as one line of a trace: kind and text, without what changes from run to run."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def summarise(values: Any) -> str:
    """Settings as one line."""
    return " ".join(f"{name}={value}" for name, value in sorted(dict(values).items()))
