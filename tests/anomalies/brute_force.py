"""A second checker, which compares everything with everything: slow, and simple enough to be read
as the definition of each anomaly. Property tests compare the checker with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from tests.anomalies.anomaly import Kind
from tests.anomalies.history import Entry, History, Operation, Outcome, Partition, Send

Found = set[tuple[Kind, str]]


def anomalies(history: History) -> Found:
    """Return the kinds and subjects of all anomalies but cycles."""
    return {
        *_of_writes(history),
        *_of_isolation(history),
        *_of_polls(history),
        *_of_order(history),
        *_of_groups(history),
        *_of_liveness(history),
    }


def cyclic_transactions(history: History, *, writes: bool, reads: bool) -> set[frozenset[int]]:
    """Return the sets of transactions of which each one follows each other one."""
    transactions = [each for each in history.operations if each.transactional]
    follows = {
        (one.number, two.number)
        for one, two in product(transactions, transactions)
        if one is not two
        and ((writes and _writes_after(history, one, two)) or (reads and _reads_from(one, two)))
    }
    for middle in transactions:
        follows |= {
            (one, two)
            for one, left in follows
            if left == middle.number
            for right, two in follows
            if right == middle.number
        }
    return {
        frozenset(
            {one.number}
            | {
                two.number
                for two in transactions
                if {(one.number, two.number), (two.number, one.number)} <= follows
            }
        )
        for one in transactions
        if any(
            (one.number, two.number) in follows and (two.number, one.number) in follows
            for two in transactions
            if two is not one
        )
    }


def _records(history: History) -> Iterator[tuple[Partition, Entry]]:
    for partition, entries in history.log.items():
        for entry in entries:
            yield partition, entry


def _all_sends(history: History) -> Iterator[tuple[Operation, Send]]:
    for operation in history.operations:
        for send in operation.sends:
            yield operation, send


def _is_committed(history: History, value: int) -> bool:
    return any(entry.value == value and entry.committed for _, entry in _records(history))


def _reads_committed_only(history: History, operation: Operation) -> bool:
    reader = history.readers.get(operation.client)
    return reader is not None and reader.committed_only


def _writes_after(history: History, one: Operation, two: Operation) -> bool:
    ones, twos = ({send.value for send in each.sends} for each in (one, two))
    return any(
        first.value in ones and second.value in twos and first.offset < second.offset
        for (here, first), (there, second) in product(_records(history), repeat=2)
        if here == there and first.committed and second.committed
    )


def _reads_from(one: Operation, two: Operation) -> bool:
    return bool({send.value for send in one.sends} & {read.value for read in two.reads})


def _of_writes(history: History) -> Iterator[tuple[Kind, str]]:
    for operation, send in _all_sends(history):
        subject = f"value {send.value}"
        if operation.outcome is Outcome.OK and not _is_committed(history, send.value):
            yield Kind.LOST_WRITE, subject
        places = [(p, e.offset) for p, e in _records(history) if e.value == send.value]
        if (
            operation.outcome is Outcome.OK
            and send.offset is not None
            and places
            and (send.partition, send.offset) not in places
        ):
            yield Kind.WRONG_OFFSET, subject
        if operation.outcome is Outcome.FAILED and _is_committed(history, send.value):
            yield Kind.ABORTED_READ, subject
    sent = {(send.value, send.partition) for _, send in _all_sends(history)}
    found = {(entry.value, partition) for partition, entry in _records(history)}
    found |= {(read.value, read.partition) for each in history.operations for read in each.reads}
    for value, partition in found - sent:
        yield Kind.PHANTOM, f"value {value} in {partition}"
    for (_, one), (_, two) in combinations(_records(history), 2):
        if one.value == two.value and one.committed and two.committed:
            yield Kind.DUPLICATE, f"value {one.value}"


def _of_isolation(history: History) -> Iterator[tuple[Kind, str]]:
    for reading, read in (
        (operation, read) for operation in history.operations for read in operation.reads
    ):
        for partition, entry in _records(history):
            if (partition, entry.offset) == read[:2] and entry.value != read.value:
                yield Kind.INCONSISTENT_OFFSET, f"{partition}@{read.offset}"
        for other in history.operations:
            for another in other.reads:
                if another[:2] == read[:2] and another.value != read.value:
                    yield Kind.INCONSISTENT_OFFSET, f"{read.partition}@{read.offset}"
        for operation, send in _all_sends(history):
            if send.value != read.value:
                continue
            committed_only = _reads_committed_only(history, reading)
            subject = f"value {read.value}"
            failed = operation.outcome is Outcome.FAILED
            if committed_only and not failed and not _is_committed(history, read.value):
                yield Kind.UNSTABLE_READ, subject
            if (
                failed
                and reading.client in history.readers
                and (committed_only or not operation.transactional)
            ):
                yield Kind.ABORTED_READ, subject
            if (
                committed_only
                and operation.transactional
                and reading.completed is not None
                and (
                    operation is reading
                    or operation.commit_invoked is None
                    or operation.commit_invoked > reading.completed
                )
            ):
                yield Kind.INTERMEDIATE_READ, subject
    for operation in history.operations:
        committed = {_is_committed(history, send.value) for send in operation.sends}
        if operation.transactional and committed == {True, False}:
            yield Kind.TORN_TRANSACTION, f"operation {operation.number}"


def _of_polls(history: History) -> Iterator[tuple[Kind, str]]:
    reads = [(operation, read) for operation in history.operations for read in operation.reads]
    for at, (operation, read) in enumerate(reads):
        before = [
            (other, earlier)
            for other, earlier in reads[:at]
            if other.client == operation.client and earlier.partition == read.partition
        ]
        if not before or any(
            before[-1][0].number < moved.number <= operation.number
            and moved.client == operation.client
            and read.partition in moved.partitions
            for moved in history.repositioned
        ):
            continue
        last = before[-1][1].offset
        subject = f"{operation.client} at {read.partition}@{read.offset}"
        reader = history.readers.get(operation.client)
        every = reader is not None and not reader.committed_only
        if read.offset <= last:
            yield Kind.NONMONOTONIC_POLL, subject
        elif any(
            partition == read.partition
            and last < entry.offset < read.offset
            and (entry.committed or every)
            for partition, entry in _records(history)
        ):
            yield Kind.POLL_SKIP, subject
    for name in history.final_polls:
        seen = {read.value for each, read in reads if history.reading_as(each.client) == name}
        for partition, entry in _records(history):
            if (
                entry.committed
                and entry.offset >= history.start.get(partition, 0)
                and entry.value not in seen
            ):
                yield Kind.UNSEEN, f"value {entry.value} by {name}"


def _of_order(history: History) -> Iterator[tuple[Kind, str]]:
    first: dict[tuple[Partition, int], int] = {}
    for partition, entry in _records(history):
        first.setdefault((partition, entry.value), entry.offset)
    sends = [
        ((operation.number, place), operation, send.value)
        for operation in history.operations
        for place, send in enumerate(operation.sends)
    ]
    for partition in history.log:
        stored = [each for each in sends if (partition, each[2]) in first]
        for (turn, one, value), (later, two, other) in product(stored, stored):
            behind = first[partition, value] > first[partition, other]
            if not behind:
                continue
            if (one.client, one.caller) == (two.client, two.caller) and turn < later:
                yield Kind.CALLER_ORDER, f"value {value}"
            if (
                one.outcome is Outcome.OK
                and one.completed is not None
                and one.completed < two.invoked
            ):
                yield Kind.REAL_TIME_ORDER, f"value {other}"


def _of_groups(history: History) -> Iterator[tuple[Kind, str]]:
    for one, two in combinations(history.owners, 2):
        if one[:3] == two[:3] and one.client != two.client:
            yield Kind.TWO_OWNERS, f"{one.partition} of {one.group} in {one.generation}"
    for operation in history.operations:
        name = history.reading_as(operation.client)
        invoked = operation.invoked
        if operation.commit_invoked is not None:
            invoked = operation.commit_invoked
        for partition, offset in operation.commits.items():
            got = {
                read.offset
                for other in history.operations
                if history.reading_as(other.client) == name
                and (at := other.commit_invoked if other.commits else other.completed) is not None
                and at <= invoked
                for read in other.reads
                if read.partition == partition
            }
            if operation.outcome is not Outcome.FAILED and any(
                here == partition
                and entry.committed
                and history.start.get(partition, 0) <= entry.offset < offset
                and entry.offset not in got
                for here, entry in _records(history)
            ):
                yield Kind.COMMIT_BEYOND_READ, f"operation {operation.number} in {partition}"


def _of_liveness(history: History) -> Iterator[tuple[Kind, str]]:
    for operation in history.operations:
        ended = history.ended if operation.completed is None else operation.completed
        if (operation.completed is None and operation.outcome is Outcome.OPEN) or (
            ended - operation.invoked > operation.limit
        ):
            yield Kind.HUNG, f"operation {operation.number}"
    if history.faults_ended is None or history.ended < history.faults_ended + history.grace:
        return
    until = history.faults_ended + history.grace
    later = [
        each
        for each in history.operations
        if history.faults_ended <= each.invoked < until and not each.lifecycle
    ]
    for client in {each.client for each in later}:
        if not any(
            each.client == client
            and each.outcome is Outcome.OK
            and each.completed is not None
            and each.completed <= until
            for each in later
        ):
            yield Kind.UNAVAILABLE, client
