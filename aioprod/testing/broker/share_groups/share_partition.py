"""The records of one partition for one share group: which of them are available, acquired,
acknowledged or archived, as in Kafka's SharePartition.

Synchronous decisions over (state, now), without sockets, clock or event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.settings.group_configs import ShareSettings
from aioprod.testing.broker.share_groups.dead_records import (
    DELIVERED_TOO_OFTEN,
    REJECTED,
    DeadRecord,
)
from aioprod.testing.broker.share_groups.records import (
    DONE,
    Acknowledge,
    Acknowledgements,
    Acquired,
    InFlight,
    LogBatch,
    RecordState,
    Unit,
)


class SharePartition:
    """The state of a partition for a group.

    Attributes:
        start_offset: the offset of the first record that is not done.
        end_offset: the offset of the first record that was never acquired.
        saved_start: the start offset in the log of share groups: that before the last change of
            records, or -1 before the first change. Admin requests return this one.
        saved_done: the records from ``saved_start`` on that are done.
    """

    def __init__(self, start_offset: int, saved_start: int = -1) -> None:
        self.start_offset: int = start_offset
        self.end_offset: int = start_offset
        self.saved_start: int = saved_start
        self.saved_done: int = 0
        self._units: list[Unit] = []
        self._dead: list[DeadRecord] = []

    # -- queries -----------------------------------------------------------------------------------

    @property
    def next_fetch_offset(self) -> int:
        """The offset of the first record that a member can acquire."""
        return next(
            (offset for offset, record in self.records() if record.state is RecordState.AVAILABLE),
            self.end_offset,
        )

    @property
    def next_timeout(self) -> float | None:
        """The time at which the next lock expires, or None if no record is acquired."""
        locks = (record.locked_until for _, record in self._acquired())
        return min(locks, default=None)

    def records(self) -> Iterator[tuple[int, InFlight]]:
        """Iterate over the records between the start and the end offset."""
        return (
            (offset, record)
            for unit in self._units
            for offset, record in unit.records.items()
            if offset >= self.start_offset
        )

    # -- acquiring ---------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        batches: Sequence[LogBatch],
        max_records: int,
        batch_size: int,
        settings: ShareSettings,
        now: float,
        *,
        exact: bool,
    ) -> list[Acquired]:
        """Acquire records for a member.

        Args:
            batches: the batches of the log from ``next_fetch_offset`` on.
            max_records: the maximum number of records for the member. It is exact only with
                ``exact`` (KIP-1206); otherwise the member gets whole batches.
            batch_size: the approximate number of records that are acquired together.
        """
        taken: dict[int, InFlight] = {}
        until = now + settings.lock_duration_ms / 1000
        is_over = False
        last_readable = batches[-1].last if batches else self.start_offset - 1
        for unit in self._units:
            left = max_records - len(taken)
            if left <= 0 or is_over:
                break
            chosen, is_over = _choose(
                unit, last_readable, left, settings, is_first=not taken, exact=exact
            )
            for offset in chosen:
                unit.records[offset].acquire(member_id, until)
                taken[offset] = unit.records[offset]
        if len(taken) < max_records and not is_over:
            taken |= self._acquire_new(
                batches, max_records - len(taken), batch_size, settings, (member_id, until), exact
            )
        for batch in batches:
            if batch.is_aborted:
                for offset in range(batch.first, batch.last + 1):
                    record = taken.pop(offset, None)
                    if record is not None:
                        record.move_to(RecordState.ARCHIVED)
        self._slide()
        return _in_runs(taken)

    def _acquire_new(
        self,
        batches: Sequence[LogBatch],
        wanted: int,
        batch_size: int,
        settings: ShareSettings,
        lock: tuple[str, float],
        exact: bool,
    ) -> dict[int, InFlight]:
        """Acquire records that no member has acquired before."""
        wanted = min(wanted, settings.max_record_locks - (self.end_offset - self.start_offset))
        taken: dict[int, InFlight] = {}
        unit: Unit | None = None
        for batch in batches:
            if batch.last < self.end_offset:
                continue
            if len(taken) >= wanted:
                break
            first = max(batch.first, self.end_offset)
            if unit is None or (not exact and first - unit.first >= batch_size):
                unit = Unit(first)
                self._units.append(unit)
            for offset in range(first, batch.last + 1):
                record = unit.records[offset] = InFlight()
                if exact and len(taken) >= wanted:
                    unit.is_split = True
                    continue
                record.acquire(*lock)
                taken[offset] = record
            self.end_offset = batch.last + 1
        return taken

    # -- acknowledging -----------------------------------------------------------------------------

    def acknowledge(
        self,
        member_id: str,
        runs: Iterable[Acknowledgements],
        settings: ShareSettings,
        now: float,
    ) -> None:
        """Acknowledge all records in a request, or none.

        Raises:
            RequestError: if a record is not acquired by this member (INVALID_RECORD_STATE), or was
                never acquired (INVALID_REQUEST).
        """
        changes: dict[int, tuple[InFlight, int]] = {}
        split: list[Unit] = []
        for run in runs:
            if run.last < self.start_offset:
                continue
            self._check_range(run)
            for unit in self._units:
                first, last = max(run.first, unit.first), min(run.last, unit.last)
                if first > last:
                    continue
                if len(run.types) > 1 or (first, last) != (unit.first, unit.last):
                    split.append(unit)
                for offset in range(max(first, self.start_offset), last + 1):
                    record = unit.records[offset]
                    _check_owner(record, member_id, offset, is_new=offset not in changes)
                    changes[offset] = record, run.type_of(offset)
        for unit in split:
            unit.is_split = True
        for offset, (record, kind) in changes.items():
            self._change(offset, record, kind, settings, now)
        if any(kind != Acknowledge.RENEW for _, kind in changes.values()):
            self._save()

    def _check_range(self, run: Acknowledgements) -> None:
        """Raise RequestError if records were never acquired."""
        if not self._units:
            raise RequestError(
                ErrorCode.INVALID_RECORD_STATE, f"no record from {run.first} on is acquired"
            )
        if max(run.first, run.last) >= self.end_offset:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"the records {run.first} to {run.last} end after {self.end_offset - 1}, the last "
                "one that was acquired",
            )

    def _change(
        self, offset: int, record: InFlight, kind: int, settings: ShareSettings, now: float
    ) -> None:
        if kind == Acknowledge.RENEW:
            record.locked_until = now + settings.lock_duration_ms / 1000
        elif kind == Acknowledge.RELEASE:
            self._release(offset, record, settings)
        elif kind == Acknowledge.REJECT:
            self._archive(offset, record, REJECTED)
        else:
            record.move_to(
                RecordState.ACKNOWLEDGED if kind == Acknowledge.ACCEPT else RecordState.ARCHIVED
            )

    def _release(self, offset: int, record: InFlight, settings: ShareSettings) -> None:
        if record.delivery_count >= settings.delivery_count_limit:
            self._archive(offset, record, DELIVERED_TOO_OFTEN)
        else:
            record.move_to(RecordState.AVAILABLE)

    def _archive(self, offset: int, record: InFlight, reason: str) -> None:
        record.move_to(RecordState.ARCHIVED)
        self._dead.append(DeadRecord(offset, record.delivery_count, reason))

    def take_dead(self) -> list[DeadRecord]:
        """Return the records that are not delivered again because of changes since the last
        call.
        """
        dead, self._dead = self._dead, []
        return dead

    def release(self, member_id: str, settings: ShareSettings) -> None:
        """Release all records of a member, whose session has ended."""
        self._release_all(lambda record: record.member_id == member_id, settings)

    def expire(self, now: float, settings: ShareSettings) -> None:
        """Release the records whose locks have expired."""
        self._release_all(lambda record: record.locked_until <= now, settings)

    def _acquired(self) -> Iterator[tuple[int, InFlight]]:
        return (pair for pair in self._all() if pair[1].state is RecordState.ACQUIRED)

    def _release_all(self, chosen: Callable[[InFlight], bool], settings: ShareSettings) -> None:
        found = [pair for pair in self._acquired() if chosen(pair[1])]
        for offset, record in found:
            self._release(offset, record, settings)
        if found:
            self._save()

    # -- offsets -----------------------------------------------------------------------------------

    def follow_log(self, log_start: int) -> None:
        """Advance the start offset to the log's start if that is later."""
        if log_start <= self.start_offset:
            return
        for offset, record in self._all():
            if offset < log_start and record.state is RecordState.AVAILABLE:
                record.move_to(RecordState.ARCHIVED)
        self.start_offset = log_start
        self.end_offset = max(self.end_offset, log_start)
        self._slide()

    def reload(self) -> None:
        """Start like a new leader, with the state in the log of share groups. Acquired records
        become available, and their last delivery is not counted.
        """
        kept = [
            record.saved_state is not RecordState.AVAILABLE or record.saved_count > 0
            for _, record in self._all()
        ]
        while kept and not kept[-1]:
            kept.pop()
        saved = dict(list(self._all())[: len(kept)])
        self._units = []
        for offset, record in saved.items():
            state = RecordState.AVAILABLE if record.saved_state not in DONE else record.saved_state
            fresh = InFlight(state, record.saved_count)
            fresh.saved_state, fresh.saved_count = state, record.saved_count
            if not self._units:
                self._units.append(Unit(offset, is_split=True))
            self._units[0].records[offset] = fresh
        self.end_offset = max(saved, default=self.start_offset - 1) + 1
        self._slide()

    def _all(self) -> Iterator[tuple[int, InFlight]]:
        return (pair for unit in self._units for pair in unit.records.items())

    def _save(self) -> None:
        """Persist the state, as in the log of share groups, and move the start offset."""
        self.saved_start = self.start_offset
        self.saved_done = sum(record.state in DONE for _, record in self.records())
        self._slide()

    def _slide(self) -> None:
        """Move the start offset to the first record that is not done, and forget the records before
        it.
        """
        self.start_offset = next(
            (offset for offset, record in self.records() if record.state not in DONE),
            self.end_offset,
        )
        self._units = [unit for unit in self._units if unit.last >= self.start_offset]


def _choose(
    unit: Unit,
    last_readable: int,
    wanted: int,
    settings: ShareSettings,
    *,
    is_first: bool,
    exact: bool,
) -> tuple[list[int], bool]:
    """Return the available records of a unit that a member acquires, and whether it acquires no
    others.

    A record that was delivered often is delivered with fewer and fewer others, and the last time
    alone, because it may be the record that crashes its members.
    """
    limit = settings.delivery_count_limit
    available = [
        offset
        for offset, record in unit.records.items()
        if record.state is RecordState.AVAILABLE and offset <= last_readable
    ]
    if not available:
        return [], False
    counts = [unit.records[offset].delivery_count for offset in available]
    slow_from = max(2, (limit + 1) // 2)
    is_slow = max(counts) >= slow_from
    if is_slow and not is_first:
        return [], True
    is_whole = len(available) == len(unit.records) and not unit.is_split
    if is_whole and not is_slow and not (exact and len(available) > wanted):
        return available, False
    unit.is_split = True
    most = wanted if exact else len(available)
    chosen: list[int] = []
    for offset, count in zip(available, counts, strict=True):
        if len(chosen) >= most:
            break
        if limit > 2 and count == limit - 1:
            if not chosen:
                chosen.append(offset)
            break
        if count >= slow_from:
            most = min(most, max(1, len(unit.records) >> (count - slow_from + 1)))
            slow_from = limit + 1  # the first such record decides
        chosen.append(offset)
    return chosen, is_slow


def _check_owner(record: InFlight, member_id: str, offset: int, *, is_new: bool) -> None:
    is_own = record.state is RecordState.ACQUIRED and record.member_id == member_id
    if not (is_own and is_new):
        raise RequestError(
            ErrorCode.INVALID_RECORD_STATE,
            f"member {member_id} has not acquired record {offset}, or names it twice",
        )


def _in_runs(taken: dict[int, InFlight]) -> list[Acquired]:
    runs: list[Acquired] = []
    for offset, record in sorted(taken.items()):
        if (
            runs
            and runs[-1].last == offset - 1
            and runs[-1].delivery_count == record.delivery_count
        ):
            runs[-1] = runs[-1]._replace(last=offset)
        else:
            runs.append(Acquired(offset, offset, record.delivery_count))
    return runs
