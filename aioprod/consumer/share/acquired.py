"""The records of a partition in a response to ShareFetch: those that were acquired for this member,
and the acquired offsets without a record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aioprod.consumer.fetched_batches import fetched_batches
from aioprod.consumer.open_batch import open_batch
from aioprod.errors import CorruptRecordError, ProtocolError
from aioprod.protocol.messages.share_fetch import AcquiredRecords
from aioprod.protocol.old_formats import in_current_format
from aioprod.protocol.primitives import BytesLike
from aioprod.types import ConsumerRecord, TopicPartition


class AcquiredRange(NamedTuple):
    """Acquired offsets, both ends included."""

    first: int
    last: int
    delivery_count: int


class Acquired(NamedTuple):
    """What a member has acquired of a partition.

    Attributes:
        records: the records, in order.
        delivery_counts: how often the group has got each of them.
        gaps: first and last offsets of runs without a record.
        unread: the same for offsets behind the data that can be read: they may have records.
        error: why the rest of the data can't be read, if so.
    """

    records: list[ConsumerRecord]
    delivery_counts: list[int]
    gaps: list[tuple[int, int]]
    unread: list[tuple[int, int]]
    error: CorruptRecordError | None


def acquired_ranges(told: Iterable[AcquiredRecords]) -> list[AcquiredRange]:
    """Return the acquired ranges of a response.

    Raises:
        ProtocolError: if they are not in ascending order.
    """
    ranges: list[AcquiredRange] = []
    for each in told:
        if each.last_offset < each.first_offset or (
            ranges and each.first_offset <= ranges[-1].last
        ):
            raise ProtocolError(
                f"acquired offsets {each.first_offset} to {each.last_offset} are not ascending"
            )
        ranges.append(AcquiredRange(each.first_offset, each.last_offset, each.delivery_count))
    return ranges


def read_acquired(
    tp: TopicPartition,
    data: BytesLike | None,
    ranges: Sequence[AcquiredRange],
    *,
    check_crcs: bool,
) -> Acquired:
    """Read the acquired records of a partition.

    A batch may have records of other members. The work is linear in the data: ranges are not
    counted out.

    Args:
        tp: the partition.
        data: the batches.
        ranges: what was acquired, in ascending order.
        check_crcs: whether to verify checksums.
    """
    records: list[ConsumerRecord] = []
    counts: list[int] = []
    error: CorruptRecordError | None = None
    starts = [each.first for each in ranges]
    read_to = -1  # the last offset that was read
    try:
        batches = in_current_format(data or b"", check_crcs=check_crcs)
        for header, place in fetched_batches(batches, 0, check_crcs=check_crcs):
            if not header.is_control and header.record_count:
                batch = open_batch(tp, batches, place, header, 0)
                taken = batch.take(batch.left)
                found = bisect_right(starts, header.base_offset) - 1
                if found >= 0 and header.last_offset <= ranges[found].last:
                    # All are acquired, as most often. One by one they took a tenth of reading.
                    records += taken
                    counts += [ranges[found].delivery_count] * len(taken)
                else:
                    _pick(taken, starts, ranges, records, counts)
            read_to = header.last_offset
    except ProtocolError as reason:
        error = CorruptRecordError(f"{tp.topic}-{tp.partition} behind offset {read_to}: {reason}")
    if len(records) == sum(each.last - each.first + 1 for each in ranges):
        return Acquired(records, counts, [], [], error)
    missing = _without(ranges, [record.offset for record in records])
    return Acquired(
        records, counts, _between(missing, 0, read_to), _between(missing, read_to + 1, None), error
    )


def _pick(
    found: Iterable[ConsumerRecord],
    starts: Sequence[int],
    ranges: Sequence[AcquiredRange],
    records: list[ConsumerRecord],
    counts: list[int],
) -> None:
    """Add those records of a batch that are acquired, with their delivery counts."""
    for record in found:
        place = bisect_right(starts, record.offset) - 1
        if place >= 0 and record.offset <= ranges[place].last:
            records.append(record)
            counts.append(ranges[place].delivery_count)


def _without(ranges: Iterable[AcquiredRange], offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs of acquired offsets that are not among ``offsets``, which ascend."""
    runs: list[tuple[int, int]] = []
    index = 0
    for first, last, _ in ranges:
        following = first
        while index < len(offsets) and offsets[index] <= last:
            if offsets[index] > following:
                runs.append((following, offsets[index] - 1))
            following = offsets[index] + 1
            index += 1
        if following <= last:
            runs.append((following, last))
    return runs


def _between(runs: Iterable[tuple[int, int]], low: int, high: int | None) -> list[tuple[int, int]]:
    """Return the parts of runs from ``low`` to ``high``, or to their end."""
    parts = [(max(first, low), last if high is None else min(last, high)) for first, last in runs]
    return [(first, last) for first, last in parts if first <= last]
