"""The history of a run as the clients saw it: what was sent and with which outcome, what was read,
and how long calls took.

Plain data. `checkers.py` checks it after the run; unit tests build histories by hand.
"""

from __future__ import annotations

import hashlib
from collections import Counter
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
    """A point in the history: its place in the order of all events, and the loop's time in
    seconds.
    """

    order: int
    at: float


class Guarantee(Enum):
    """The guarantee of a producer's settings for an acknowledged record."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    UNLESS_LEADER_FAILS = "at least once, unless its leader fails"
    NOTHING = "nothing"


class Content(NamedTuple):
    """Key, value and headers of a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None, headers: Headers) -> Content:
        """Return the content with the headers as a tuple."""
        return cls(key, value, tuple(headers))


class RecordPosition(NamedTuple):
    """A partition and an offset."""

    partition: TopicPartition
    offset: int


@dataclass(slots=True)
class SentRecord:
    """A record and its outcome.

    Attributes:
        number: unique in the run.
        producer: the name of its producer.
        partition: the requested partition; None if the producer chooses.
        called: when `send` was called.
        transaction: the number of the producer's transaction.
        returned: when `send` returned or raised; None if it did not.
        refusal: the error that `send` raised. The record must not be in the log, unless the error
            is ``CANCELLED``.
        resolved: when the delivery was resolved.
        position: the acknowledged position; offset -1 if unknown.
        error: the error of the delivery.
        never_left: whether the error means that the record was never sent to a broker.
        waits: how many times the call may wait for max.block.ms: once for each record, and once for
            its turn.
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
    position: RecordPosition | None = None
    error: str | None = None
    never_left: bool = False
    waits: int = 1

    @property
    def accepted(self) -> bool:
        """True if `send` returned a delivery."""
        return self.returned is not None and self.refusal is None

    @property
    def acknowledged(self) -> bool:
        """True if the delivery succeeded."""
        return self.position is not None

    @property
    def forbidden(self) -> bool:
        """True if the record must not be in the log."""
        return self.never_left or self.refusal not in (None, CANCELLED)


class TransactionOutcome(Enum):
    """The outcome of a transaction, as far as its producer knows."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class TransactionTrace:
    """A transaction of a producer.

    Attributes:
        commit_called: when its commit was first called; None if it was not.
        ended: when its outcome was known.
        group_offset: the offset that it commits for a consumer group, or None. It increases with
            each transaction of a transactional id.
    """

    producer: str
    number: int
    begun: Moment
    outcome: TransactionOutcome = TransactionOutcome.OPEN
    commit_called: Moment | None = None
    ended: Moment | None = None
    group_offset: int | None = None


class Read(NamedTuple):
    """A record that a reader received; ``number`` is None if no producer sent this content."""

    moment: Moment
    offset: int
    number: int | None


@dataclass(slots=True)
class Reading:
    """The records that a reader received from a partition, in order.

    Attributes:
        final: whether it read the whole log at the end of the run.
        start: the first offset that it fetched.
        failure: the error that ended it, or None.
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
    """A call with a time limit, such as a flush.

    Attributes:
        limit: the time limit in seconds.
        must_succeed: whether it is not allowed to fail.
        ended: when it ended; None if it did not.
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
    """A producer and what its settings guarantee.

    Attributes:
        ordered: whether each partition keeps the order of the calls of `send`.
        delivery_limit: seconds within which each delivery is resolved.
        send_limit: seconds within which `send` returns.
        may_be_fatal: whether a fatal error is allowed, as for a fenced producer.
        fatal: the fatal error, or None.
        leftovers: bytes, batches and tasks that were left after closing.
    """

    name: str
    guarantee: Guarantee
    ordered: bool
    delivery_limit: float
    send_limit: float
    may_be_fatal: bool = False
    transactional_id: str | None = None
    fatal: str | None = None
    leftovers: list[str] = field(default_factory=list)


class Line(NamedTuple):
    """A line of the trace; ``subjects`` names what it is about, such as ``record 17``."""

    moment: Moment
    text: str
    subjects: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.moment.order:6d} {self.moment.at:10.6f}  {self.text}"


class Finding(NamedTuple):
    """An anomaly: its name, a description, and the subjects of the trace lines that show it."""

    anomaly: str
    text: str
    subjects: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.anomaly}: {self.text}"


@dataclass(slots=True)
class History:
    """The history of a run.

    Attributes:
        suspensions: when the process was suspended, and for how many seconds; these do not count
            against limits.
        freezes: when the process of a client was frozen, and when it continued: begin and end.
        leader_failed: whether a leader failed, which may lose records that only it had.
        group_offsets: the committed offset at the end, by transactional id.
        stored: offsets and record numbers of all records in the broker's log at the end, by
            partition, read without a client.
        leftovers: tasks, connections and failed callbacks that were left after closing.
        unexpected_log: log lines that report a bug of the library.
        counts: how often the checkers saw what may be.
    """

    clock: Callable[[], float] = field(default=lambda: 0.0)
    records: list[SentRecord] = field(default_factory=list)
    transactions: list[TransactionTrace] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    calls: list[CallTrace] = field(default_factory=list)
    producers: dict[str, ProducerTrace] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    suspensions: list[tuple[float, float]] = field(default_factory=list)
    freezes: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    leader_failed: bool = False
    group_offsets: dict[str, int] = field(default_factory=dict)
    stored: dict[TopicPartition, list[tuple[int, int | None]]] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    unexpected_log: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _by_content: dict[Content, int] = field(default_factory=dict)

    def note(self, text: str, *subjects: str) -> Moment:
        """Add a line to the trace and return its moment."""
        moment = Moment(len(self.lines), self.clock())
        self.lines.append(Line(moment, text, subjects))
        return moment

    def digest(self) -> str:
        """Return a digest of all lines: equal for equal seeds."""
        digest = hashlib.blake2b(digest_size=8)
        for line in self.lines:
            digest.update(str(line).encode())
        return digest.hexdigest()

    def about(self, subjects: tuple[str, ...]) -> Iterator[Line]:
        """Return the lines about any of these subjects."""
        wanted = set(subjects)
        return (line for line in self.lines if wanted.intersection(line.subjects))

    def duration(self, begun: Moment, ended: Moment) -> float:
        """Return the seconds between two moments, without suspensions."""
        return (
            ended.at
            - begun.at
            - sum(seconds for at, seconds in self.suspensions if begun.at <= at <= ended.at)
        )

    def time_of(self, owner: str, begun: Moment, ended: Moment) -> float:
        """Return the seconds between two moments in which the owner was running."""
        frozen = sum(
            max(0.0, min(end, ended.at) - max(begin, begun.at))
            for begin, end in self.freezes.get(owner, ())
        )
        return self.duration(begun, ended) - frozen

    # -- records -----------------------------------------------------------------------------------

    def send(
        self,
        producer: str,
        topic: str,
        content: Content,
        partition: int | None,
        transaction: int | None,
    ) -> SentRecord:
        """Record that a call of `send` begins."""
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
        """Record that the task that calls `send` has started to run."""
        record.called = self.note(
            f"record {record.number} is passed to its producer", f"record {record.number}"
        )

    def accepted(self, record: SentRecord) -> None:
        """Record that `send` has returned."""
        record.returned = self.note(
            f"record {record.number} is accepted", f"record {record.number}"
        )

    def refused(self, record: SentRecord, refusal: str) -> None:
        """Record that `send` has raised an error."""
        record.refusal = refusal
        record.returned = self.note(
            f"record {record.number} is refused: {refusal}", f"record {record.number}"
        )

    def acknowledged(self, record: SentRecord, position: RecordPosition) -> None:
        """Record that the delivery has succeeded."""
        record.position = position
        where = f"{position.partition.topic}-{position.partition.partition}@{position.offset}"
        record.resolved = self._resolved(
            record, f"record {record.number} is acknowledged at {where}"
        )

    def failed(self, record: SentRecord, error: str, *, never_left: bool) -> None:
        """Record that the delivery has failed."""
        record.error, record.never_left = error, never_left
        record.resolved = self._resolved(record, f"record {record.number} fails: {error}")

    def _resolved(self, record: SentRecord, text: str) -> Moment:
        if record.resolved is not None:
            self.leftovers.append(f"record {record.number} has two outcomes")
        return self.note(text, f"record {record.number}")

    def number_of(self, content: Content) -> int | None:
        """Return the number of the record with this content; None if no producer sent it."""
        return self._by_content.get(content)

    # -- transactions, calls and readers -----------------------------------------------------------

    def begin(self, producer: str, number: int) -> TransactionTrace:
        """Record that a transaction is open."""
        moment = self.note(
            f"{producer} begins transaction {number}", producer, f"{producer} transaction {number}"
        )
        trace = TransactionTrace(producer, number, moment)
        self.transactions.append(trace)
        return trace

    def end(self, trace: TransactionTrace, outcome: TransactionOutcome) -> None:
        """Record the outcome of a transaction."""
        trace.outcome = outcome
        subject = f"{trace.producer} transaction {trace.number}"
        trace.ended = self.note(f"{subject} is {outcome.value}", trace.producer, subject)

    def commit_called(self, trace: TransactionTrace) -> None:
        """Record that the commit of a transaction is called."""
        subject = f"{trace.producer} transaction {trace.number}"
        moment = self.note(f"{subject}: commit is called", trace.producer, subject)
        trace.commit_called = trace.commit_called or moment

    def call(self, owner: str, name: str, limit: float, *, must_succeed: bool = False) -> CallTrace:
        """Record that a call with a time limit begins."""
        trace = CallTrace(
            name, owner, self.note(f"{owner}: {name} ...", owner), limit, must_succeed
        )
        self.calls.append(trace)
        return trace

    def returned(self, trace: CallTrace, outcome: str) -> None:
        """Record that a call has ended."""
        trace.outcome = outcome
        trace.ended = self.note(f"{trace.owner}: {trace.name} ends: {outcome}", trace.owner)

    def read(self, reading: Reading, offset: int, content: Content) -> None:
        """Record that a reader has received a record."""
        number = self.number_of(content)
        subject = f"record {number}" if number is not None else "an unknown record"
        where = f"{reading.partition.topic}-{reading.partition.partition}@{offset}"
        reading.reads.append(
            Read(self.note(f"{reading.name} reads {subject} at {where}", subject), offset, number)
        )


def error_name(error: BaseException) -> str:
    """Return the type and message of an error."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def summarize(values: Any) -> str:
    """Return settings as one line."""
    return " ".join(f"{name}={value}" for name, value in sorted(dict(values).items()))
