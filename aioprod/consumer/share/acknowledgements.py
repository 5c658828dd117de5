"""The acknowledgements for one broker, from the call to their outcome, and how requests have them
(KIP-932). No I/O.
"""

import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from aioprod.closing import all_in_turn
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.net.refusals import explain
from aioprod.types import AcknowledgeType, TopicPartition

GAP = 0
"""The type of acquired offsets without a record: compacted ones, and control records."""

BatchT = TypeVar("BatchT")
PartitionKey = tuple[uuid.UUID, int]


class SharePartition(NamedTuple):
    """A partition of a share group: brokers know it by the id of its topic."""

    topic_id: uuid.UUID
    topic: str
    partition: int

    @property
    def tp(self) -> TopicPartition:
        """The partition by name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> PartitionKey:
        """The partition as responses name it."""
        return self.topic_id, self.partition


class OffsetRun(NamedTuple):
    """Consecutive offsets.

    Attributes:
        first, last: the offsets; both belong to it.
        types: one for all offsets, or one for each.
    """

    first: int
    last: int
    types: list[int]


class Skipped(NamedTuple):
    """Offsets that the application did not get.

    Attributes:
        locked_until: loop time at which their lock ends.
    """

    run: OffsetRun
    locked_until: float


def offset_runs(types: Mapping[int, int], others: Iterable[OffsetRun]) -> list[OffsetRun]:
    """Return acknowledgements in ascending order, with those of neighboring records in one run.

    Args:
        types: the type by offset.
        others: further runs; they overlap neither each other nor ``types``.
    """
    if len(said := set(types.values())) == 1:  # as most often
        lowest, highest = min(types), max(types)
        if highest - lowest + 1 == len(types):
            return sorted([OffsetRun(lowest, highest, [*said]), *others])
    starts: list[int] = []
    of_runs: list[list[int]] = []
    following = -1
    for offset, kind in sorted(types.items()):
        if offset != following:
            starts.append(offset)
            of_runs.append([])
        of_runs[-1].append(kind)
        following = offset + 1
    of_records = [
        OffsetRun(first, first + len(kinds) - 1, kinds[:1] if len(set(kinds)) == 1 else kinds)
        for first, kinds in zip(starts, of_runs, strict=True)
    ]
    return sorted([*of_records, *others])


@dataclass(slots=True)
class PartitionAcknowledgements:
    """The acknowledgements of one partition.

    Attributes:
        since: loop time at which the first of them was given.
        types: the type by offset; the last one counts.
        locked_until: loop time at which the lock of each of these offsets ends.
        others: the offsets that the application did not get.
    """

    since: float
    types: dict[int, AcknowledgeType] = field(default_factory=dict)
    locked_until: dict[int, float] = field(default_factory=dict)
    others: list[Skipped] = field(default_factory=list)

    @property
    def records(self) -> int:
        """The number of acknowledged records; offsets without a record are not counted."""
        return len(self.types) + sum(
            run.last - run.first + 1 for run, _ in self.others if run.types != [GAP]
        )

    def batches(self, make: Callable[[int, int, list[int]], BatchT]) -> list[BatchT]:
        """Return the batches of a request."""
        return [make(*run) for run in offset_runs(self.types, (run for run, _ in self.others))]

    def renewals(self) -> list[int]:
        """Return the offsets of the records whose locks are to be renewed."""
        if AcknowledgeType.RENEW not in self.types.values():
            return []
        return [offset for offset, kind in self.types.items() if kind is AcknowledgeType.RENEW]

    def pop_late(self, now: float) -> "PartitionAcknowledgements":
        """Remove those whose lock has ended, and return those of records."""
        late = PartitionAcknowledgements(self.since)
        if self.others:
            self.others = [each for each in self.others if each.locked_until > now]
        if min(self.locked_until.values(), default=now + 1) <= now:
            for offset in [offset for offset, end in self.locked_until.items() if end <= now]:
                late.locked_until[offset] = self.locked_until.pop(offset)
                late.types[offset] = self.types.pop(offset)
        return late

    def add_older(self, older: "PartitionAcknowledgements") -> None:
        """Add acknowledgements that were given before these."""
        self.types = {**older.types, **self.types}
        self.locked_until = {**older.locked_until, **self.locked_until}
        self.others = older.others + self.others
        self.since = min(self.since, older.since)


class AcknowledgementResults(NamedTuple):
    """The results of a request's acknowledgements, from its response.

    Attributes:
        refused: True if the broker has refused one.
        renewed: the partition and the offset of each record whose lock the broker has renewed.
    """

    refused: bool
    renewed: list[tuple[SharePartition, int]]


class Acknowledgements:
    """The acknowledgements for one broker that have no outcome: those that wait for a request, and
    those of the request in flight.

    Args:
        node_id: the broker.
        outcomes: gets the outcome of each.
        reporter: counts those that are sent.
        principal: the principal of the client, for errors.
        limit_s: how long those that the broker refuses are sent again, in seconds.
    """

    def __init__(
        self,
        node_id: int,
        outcomes: Outcomes,
        reporter: ShareReporter,
        principal: str,
        limit_s: float,
    ) -> None:
        self._node_id = node_id
        self._outcomes = outcomes
        self._reporter = reporter
        self._principal = principal
        self._limit_s = limit_s
        self._waiting: dict[SharePartition, PartitionAcknowledgements] = {}
        self._sent: dict[SharePartition, PartitionAcknowledgements] = {}

    @property
    def waits(self) -> bool:
        """True if one waits for a request."""
        return bool(self._waiting)

    @property
    def pending(self) -> bool:
        """True if one has no outcome."""
        return bool(self._waiting or self._sent)

    # -- waiting -----------------------------------------------------------------------------------

    @property
    def renews(self) -> bool:
        """True if a lock is to be renewed, which is a request of its own."""
        return any(
            AcknowledgeType.RENEW in waiting.types.values() for waiting in self._waiting.values()
        )

    def only_of(self, partitions: frozenset[SharePartition]) -> bool:
        """Return True if all that wait are of these partitions."""
        return self._waiting.keys() <= partitions

    def add(
        self,
        partition: SharePartition,
        offsets: Iterable[int],
        kind: AcknowledgeType,
        now: float,
        locked_until: float,
    ) -> None:
        """Add the acknowledgement of records."""
        waiting = self._of(partition, now)
        types = dict.fromkeys(offsets, kind)
        waiting.types |= types
        waiting.locked_until |= dict.fromkeys(types, locked_until)

    def extend_lock(self, partition: SharePartition, offset: int, locked_until: float) -> None:
        """Note the new end of a lock, for a later acknowledgement of the record."""
        waiting = self._waiting.get(partition)
        if waiting is not None and offset in waiting.locked_until:
            waiting.locked_until[offset] = locked_until

    def add_runs(
        self,
        partition: SharePartition,
        runs: Sequence[tuple[int, int]],
        kind: int,
        now: float,
        locked_until: float,
    ) -> None:
        """Add runs of offsets that the application did not get; ``GAP`` is a type, too."""
        if runs:
            self._of(partition, now).others += [
                Skipped(OffsetRun(first, last, [kind]), locked_until) for first, last in runs
            ]

    def drop_renewals(self) -> None:
        """Forget renewals: the session ends."""
        for partition, waiting in list(self._waiting.items()):
            for offset in waiting.renewals():
                del waiting.types[offset], waiting.locked_until[offset]
            if not (waiting.types or waiting.others):
                del self._waiting[partition]

    def refuse(
        self, partition: SharePartition, offsets: Sequence[int], kind: AcknowledgeType
    ) -> None:
        """Fail an acknowledgement of records of an earlier session."""
        self._outcomes.failed(
            partition.tp, dict.fromkeys(offsets, kind), self._session_lost(), self._reporter.now()
        )

    # -- in a request ------------------------------------------------------------------------------

    def send(self, now: float) -> Mapping[SharePartition, PartitionAcknowledgements]:
        """Return those that wait, for the next request. Those whose lock has ended fail."""
        self._sent, late = self.take(now)
        all_in_turn(partial(self._fail_late, *each) for each in late.items())
        if self._sent:
            self._reporter.acknowledgements_sent(sum(each.records for each in self._sent.values()))
        return self._sent

    def _fail_late(
        self, partition: SharePartition, acknowledgements: PartitionAcknowledgements
    ) -> None:
        error = BrokerError(
            ErrorCode.INVALID_RECORD_STATE,
            f"{_name(partition)}: the locks of the records timed out "
            "(share.record.lock.duration.ms of the group)",
        )
        self._fail(partition, acknowledgements, error)

    def take(
        self, now: float
    ) -> tuple[
        dict[SharePartition, PartitionAcknowledgements],
        dict[SharePartition, PartitionAcknowledgements],
    ]:
        """Return those to send, and those whose lock has ended; forget all that wait.

        A broker does not refuse each late acknowledgement: not if another member has accepted the
        record, and the group has gone on. If it refuses one, it refuses all of the partition.
        """
        taken, self._waiting = self._waiting, {}
        late = {partition: waiting.pop_late(now) for partition, waiting in taken.items()}
        return (
            {each: waiting for each, waiting in taken.items() if waiting.types or waiting.others},
            {each: waiting for each, waiting in late.items() if waiting.types},
        )

    def answered(
        self, codes: Mapping[PartitionKey, ErrorCode], now: float
    ) -> AcknowledgementResults:
        """Pass on the outcomes of those in the request, or let them wait to be sent again."""
        refused = False
        renewed: list[tuple[SharePartition, int]] = []
        for partition, acknowledgements in list(self._sent.items()):
            del self._sent[partition]  # the others wait for their outcome if this one is a bug
            # Without an error code in the response, nothing is confirmed.
            code = codes.get(partition.key, ErrorCode.UNKNOWN_SERVER_ERROR)
            if not code:
                self._outcomes.confirmed(
                    partition.tp, acknowledgements.types, acknowledgements.since
                )
                renewed += [(partition, offset) for offset in acknowledgements.renewals()]
                continue
            refused = True
            refusal = refusal_of(partition, code, "ShareAcknowledge", self._principal)
            tries_again = now < acknowledgements.since + self._limit_s
            if code.retriable and not code.refresh_metadata and tries_again:
                self._outcomes.retried(partition.tp, refusal)
                self.put_back(partition, acknowledgements)
            else:
                self._fail(partition, acknowledgements, refusal)
        return AcknowledgementResults(refused, renewed)

    def put_back(self, partition: SharePartition, sent: PartitionAcknowledgements) -> None:
        """Let those of a request wait to be sent again."""
        self._of(partition, sent.since).add_older(sent)

    def session_lost(self, error: KafkaError) -> None:
        """Fail all: the broker releases the records of the session, or has released them."""
        sent, self._sent = self._sent, {}
        waiting = self.take(-math.inf)[0]
        lost = self._session_lost(error)
        all_in_turn(
            [
                *(partial(self._fail, *each, error) for each in sent.items()),
                *(partial(self._fail, *each, lost) for each in waiting.items()),
            ]
        )

    def _of(self, partition: SharePartition, since: float) -> PartitionAcknowledgements:
        found = self._waiting.get(partition)
        if found is None:
            found = self._waiting[partition] = PartitionAcknowledgements(since)
        return found

    def _fail(
        self,
        partition: SharePartition,
        acknowledgements: PartitionAcknowledgements,
        error: KafkaError,
    ) -> None:
        self._outcomes.failed(partition.tp, acknowledgements.types, error, acknowledgements.since)

    def _session_lost(self, cause: KafkaError | None = None) -> KafkaError:
        error = BrokerError(
            ErrorCode.SHARE_SESSION_NOT_FOUND,
            f"broker {self._node_id}: the records of the session are delivered again",
        )
        error.__cause__ = cause
        return error


def refusal_of(
    partition: SharePartition, code: ErrorCode, request: str, principal: str
) -> BrokerError:
    """Return the error of a partition in a response.

    Args:
        partition: the partition.
        code: its error code.
        request: the name of the request.
        principal: the principal of the client.
    """
    return explain(BrokerError(code, _name(partition)), request, principal)


def _name(partition: SharePartition) -> str:
    return f"{partition.topic}-{partition.partition}"
