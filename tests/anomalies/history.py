"""The input of the checker: the operations of all clients, and the final content of the log.

A history has the operations of all clients in the order of their invocation. Each value is sent
once, so that a value names one send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Partition = str
"""A partition of one incarnation of a topic, as ``"orders/0"``."""


class Outcome(StrEnum):
    """The outcome of an operation."""

    OK = "ok"
    FAILED = "failed"
    """It certainly had no effect: refused, or aborted."""
    UNKNOWN = "unknown"
    """It may have had an effect, as after a timeout."""
    OPEN = "open"
    """It did not end."""


class Send(NamedTuple):
    """A value that was sent to a partition, and the offset that the client reported."""

    partition: Partition
    value: int
    offset: int | None = None


class Read(NamedTuple):
    """A record that a client returned."""

    partition: Partition
    offset: int
    value: int


@dataclass(slots=True)
class Operation:
    """A send, a transaction, a poll or a commit of offsets.

    Attributes:
        number: its place in the order of all invocations.
        caller: the task or thread of the client, whose operations begin one after the other.
        invoked: when it began, in seconds of one clock for all clients.
        completed: when it ended; None if it did not.
        limit: the seconds that the client's settings allow it.
        commit_invoked: when a transaction's commit was invoked; None if it was not.
        commits: the offsets that it committed: those of the next records to read.
        lifecycle: whether it starts or closes the client. Its success does not show that the client
            is available.
        error: the exception that ended it, if any.
    """

    number: int
    client: str
    caller: int
    invoked: float
    completed: float | None
    outcome: Outcome
    sends: tuple[Send, ...] = ()
    reads: tuple[Read, ...] = ()
    commits: Mapping[Partition, int] = field(default_factory=dict)
    transactional: bool = False
    commit_invoked: float | None = None
    limit: float = float("inf")
    lifecycle: bool = False
    error: str = ""


class Repositioned(NamedTuple):
    """A client's position in partitions changed by a seek or an assignment.

    Attributes:
        number: its place in the order of operations: before the one with this number.
    """

    number: int
    client: str
    partitions: frozenset[Partition]


class Owner(NamedTuple):
    """A member that was assigned a partition by a group."""

    group: str
    generation: int
    partition: Partition
    client: str


@dataclass(slots=True)
class Reader:
    """The mode in which a client reads.

    Attributes:
        group: the name of its group; None if it assigns partitions itself.
        committed_only: whether it reads committed records only (``read_committed``).
    """

    group: str | None = None
    committed_only: bool = True


class Entry(NamedTuple):
    """A record in the log at the end."""

    offset: int
    value: int
    committed: bool = True


@dataclass(slots=True)
class History:
    """Everything that happened.

    Attributes:
        log: each partition's records in the order of offsets, as an independent client reads them.
        start: the offset from which a group reads a partition; 0 if absent.
        readers: how each client that polls reads.
        final_polls: the readers' groups (or clients without a group) that polled to the end.
        faults_ended: when the last fault ended; None if availability is not judged.
        grace: the seconds after ``faults_ended`` in which each client has to succeed again.
        ended: when the history ended.
    """

    operations: list[Operation] = field(default_factory=list)
    log: dict[Partition, list[Entry]] = field(default_factory=dict)
    start: dict[Partition, int] = field(default_factory=dict)
    readers: dict[str, Reader] = field(default_factory=dict)
    repositioned: list[Repositioned] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    final_polls: set[str] = field(default_factory=set)
    faults_ended: float | None = None
    grace: float = 30.0
    ended: float = 0.0

    def reading_as(self, client: str) -> str:
        """Return the name under which a client's reads count: that of its group, or its own."""
        reader = self.readers.get(client)
        return reader.group if reader and reader.group else client
