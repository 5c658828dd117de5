"""Anomalies that are planted into a clean history, each of which the checker has to find."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from random import Random

from tests.anomalies.anomaly import Kind
from tests.anomalies.history import Entry, History, Operation, Outcome, Owner, Partition, Read, Send

Plant = Callable[[History, Random], None]


def _sends(history: History) -> list[Operation]:
    return [
        each
        for each in history.operations
        if len(each.sends) == 1 and not each.transactional and each.outcome is Outcome.OK
    ]


def _transactions(history: History) -> list[Operation]:
    return [each for each in history.operations if each.transactional and each.commit_invoked]


def _polls(history: History, least: int = 1) -> list[Operation]:
    return [
        each
        for each in history.operations
        if each.reads
        and sum(read.partition == each.reads[0].partition for read in each.reads) >= least
    ]


def _where(history: History, value: int) -> tuple[Partition, int]:
    return next(
        (partition, index)
        for partition, entries in history.log.items()
        for index, entry in enumerate(entries)
        if entry.value == value
    )


def lose_a_write(history: History, random: Random) -> None:
    partition, index = _where(history, random.choice(_sends(history)).sends[0].value)
    del history.log[partition][index]


def lose_what_was_read(history: History, random: Random) -> None:
    partition, index = _where(history, random.choice(_polls(history)).reads[0].value)
    history.log[partition][index] = history.log[partition][index]._replace(committed=False)


def store_what_was_not_sent(history: History, random: Random) -> None:
    log = history.log[random.choice([*history.log])]
    log.append(Entry(log[-1].offset + 1, -1))


def store_twice(history: History, random: Random) -> None:
    log = history.log[random.choice([*history.log])]
    log.append(Entry(log[-1].offset + 1, random.choice([e for e in log if e.committed]).value))


def report_a_wrong_offset(history: History, random: Random) -> None:
    operation = random.choice(_sends(history))
    send = operation.sends[0]
    operation.sends = (send._replace(offset=(send.offset or 0) + 1_000_000),)


def read_another_value(history: History, random: Random) -> None:
    operation = random.choice(_polls(history))
    other = random.choice(_sends(history)).sends[0].value
    first = operation.reads[0]
    value = other if other != first.value else first.value + 1
    operation.reads = (first._replace(value=value), *operation.reads[1:])


def fail_what_is_stored(history: History, random: Random) -> None:
    random.choice(_sends(history)).outcome = Outcome.FAILED


def read_an_aborted_value(history: History, random: Random) -> None:
    aborted = random.choice(
        [each for each in history.operations if each.transactional and not each.commit_invoked]
    )
    partition, index = _where(history, aborted.sends[0].value)
    offset = history.log[partition][index].offset
    operation = random.choice([each for each in history.operations if each.client == "alone"])
    operation.reads += (Read(partition, offset, aborted.sends[0].value),)


def read_before_the_commit(history: History, random: Random) -> None:
    operation = random.choice(_transactions(history))
    operation.commit_invoked = history.ended + 1


def tear_a_transaction(history: History, random: Random) -> None:
    operation = random.choice(_transactions(history))
    operation.outcome = Outcome.UNKNOWN
    partition, index = _where(history, operation.sends[-1].value)
    history.log[partition][index] = history.log[partition][index]._replace(committed=False)


def write_in_two_orders(history: History, random: Random) -> None:
    first, second = random.sample(_transactions(history), 2)
    for partition, order in (("x/0", (first, second)), ("x/1", (second, first))):
        values = [_add_send(each, partition, at) for at, each in enumerate(order)]
        history.log[partition] = [Entry(at, value) for at, value in enumerate(values)]


def read_each_other(history: History, random: Random) -> None:
    first, second = random.sample(_transactions(history), 2)
    for reader, writer in ((first, second), (second, first)):
        send = writer.sends[0]
        reader.reads += (Read(send.partition, send.offset or 0, send.value),)


def read_against_the_order_of_writes(history: History, random: Random) -> None:
    first, second = sorted(random.sample(_transactions(history), 2), key=attrgetter("number"))
    values = [_add_send(each, "x/0", at) for at, each in enumerate((first, second))]
    history.log["x/0"] = [Entry(at, value) for at, value in enumerate(values)]
    send = second.sends[0]
    first.reads += (Read(send.partition, send.offset or 0, send.value),)


def skip_a_record(history: History, random: Random) -> None:
    operation = random.choice(_polls(history, least=3))
    operation.reads = (operation.reads[0], *operation.reads[2:])


def go_back(history: History, random: Random) -> None:
    operation = random.choice(_polls(history))
    operation.reads += (operation.reads[0],)


def miss_a_record(history: History, random: Random) -> None:
    value = random.choice(_polls(history)).reads[0].value
    for operation in history.operations:
        operation.reads = tuple(read for read in operation.reads if read.value != value)


def swap_two_sends_of_a_caller(history: History, random: Random) -> None:
    first = random.choice(_sends(history)[:-20])
    second = next(
        each
        for each in _sends(history)
        if each.number > first.number and each.sends[0].partition == first.sends[0].partition
    )
    second.client, second.caller = first.client, first.caller
    _swap(history, first, second)


def store_a_later_send_first(history: History, random: Random) -> None:
    first = random.choice(_sends(history)[:-20])
    second = next(
        each
        for each in _sends(history)
        if first.completed is not None
        and each.invoked > first.completed
        and each.sends[0].partition == first.sends[0].partition
    )
    _swap(history, first, second)


def own_a_partition_twice(history: History, random: Random) -> None:
    owner = random.choice(history.owners)
    history.owners.append(Owner(owner.group, owner.generation, owner.partition, "another"))


def commit_beyond_what_was_read(history: History, random: Random) -> None:
    operation = random.choice([each for each in history.operations if each.commits])
    operation.commits = dict.fromkeys(operation.commits, 1000000)


def never_end(history: History, random: Random) -> None:
    operation = random.choice(history.operations)
    operation.completed, operation.outcome = None, Outcome.OPEN


def end_late(history: History, random: Random) -> None:
    operation = random.choice(_sends(history))
    operation.completed = operation.invoked + operation.limit + 1


def stay_away(history: History, random: Random) -> None:
    client = random.choice(_sends(history)).client
    for operation in history.operations:
        if operation.client == client:
            operation.outcome = Outcome.UNKNOWN
    history.ended = max(history.ended, history.grace + 1)


def succeed_only_in_closing(history: History, random: Random) -> None:
    stay_away(history, random)
    away = [each for each in history.operations if each.outcome is Outcome.UNKNOWN and each.sends]
    closing = random.choice(away)
    closing.sends, closing.outcome, closing.lifecycle = (), Outcome.OK, True


PLANTS: dict[Plant, Kind] = {
    lose_a_write: Kind.LOST_WRITE,
    lose_what_was_read: Kind.UNSTABLE_READ,
    store_what_was_not_sent: Kind.PHANTOM,
    store_twice: Kind.DUPLICATE,
    report_a_wrong_offset: Kind.WRONG_OFFSET,
    read_another_value: Kind.INCONSISTENT_OFFSET,
    fail_what_is_stored: Kind.ABORTED_READ,
    read_an_aborted_value: Kind.ABORTED_READ,
    read_before_the_commit: Kind.INTERMEDIATE_READ,
    tear_a_transaction: Kind.TORN_TRANSACTION,
    write_in_two_orders: Kind.WRITE_CYCLE,
    read_each_other: Kind.READ_CYCLE,
    read_against_the_order_of_writes: Kind.MIXED_CYCLE,
    skip_a_record: Kind.POLL_SKIP,
    go_back: Kind.NONMONOTONIC_POLL,
    miss_a_record: Kind.UNSEEN,
    swap_two_sends_of_a_caller: Kind.CALLER_ORDER,
    store_a_later_send_first: Kind.REAL_TIME_ORDER,
    own_a_partition_twice: Kind.TWO_OWNERS,
    commit_beyond_what_was_read: Kind.COMMIT_BEYOND_READ,
    never_end: Kind.HUNG,
    end_late: Kind.HUNG,
    stay_away: Kind.UNAVAILABLE,
    succeed_only_in_closing: Kind.UNAVAILABLE,
}
"""Each plant, and the kind that it is found as. Some have other consequences too."""


def _add_send(operation: Operation, partition: Partition, offset: int) -> int:
    value = 1_000_000 + len(operation.sends) + 100 * operation.number
    operation.sends = (*operation.sends, Send(partition, value, offset))
    return value


def _swap(history: History, first: Operation, second: Operation) -> None:
    """Exchange the values of two sends in the log, in the reads and in what was reported."""
    one, other = first.sends[0], second.sends[0]
    log = history.log[one.partition]
    exchanged = {one.value: other.value, other.value: one.value}
    log[:] = [entry._replace(value=exchanged.get(entry.value, entry.value)) for entry in log]
    for operation in history.operations:
        operation.reads = tuple(
            read._replace(value=exchanged.get(read.value, read.value)) for read in operation.reads
        )
    first.sends = (one._replace(offset=other.offset),)
    second.sends = (other._replace(offset=one.offset),)
