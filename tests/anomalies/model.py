"""Makes clean histories, as clients of a faultless cluster would leave them, for tests of the
checker.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from random import Random

from tests.anomalies.history import (
    Entry,
    History,
    Operation,
    Outcome,
    Owner,
    Partition,
    Read,
    Reader,
    Repositioned,
    Send,
)

PARTITIONS = ("t/0", "t/1", "t/2")
GROUP = "g"


class Model:
    """A cluster with a log per partition, producers, a group of two members and a reader that
    assigns all partitions itself. Each operation takes a moment, and some overlap.

    Attributes:
        history: the operations so far.
    """

    def __init__(self, seed: int) -> None:
        self.history = History(
            log={partition: [] for partition in PARTITIONS},
            readers={
                "member-1": Reader(GROUP),
                "member-2": Reader(GROUP),
                "alone": Reader(None, committed_only=True),
            },
        )
        self._random = Random(seed)
        self._now = 0.0
        self._values = 0
        self._next_offset = dict.fromkeys(PARTITIONS, 0)
        self._positions: dict[tuple[str, Partition], int] = {}
        self._owner: dict[Partition, str] = {}
        self._generation = 0
        self._rebalance()

    def run(self, operations: int) -> History:
        """Do a number of operations, and let each reader read to the end."""
        steps = (self._send, self._send, self._transaction, self._poll, self._poll, self._commit)
        while len(self.history.operations) < operations:
            self._random.choice(steps)()
            if self._random.random() < 0.002:
                self._rebalance()
        for client in self.history.readers:
            for _ in range(len(PARTITIONS)):
                self._poll(client, most=len(self.history.operations) * 3)
        self.history.final_polls = {GROUP, "alone"}
        self.history.faults_ended, self.history.grace = 0.0, 1.0
        self.history.ended = self._now
        return self.history

    def _rebalance(self) -> None:
        self._generation += 1
        for partition in PARTITIONS:
            member = self._random.choice(("member-1", "member-2"))
            previous = self._owner.get(partition)
            self._owner[partition] = member
            self.history.owners.append(Owner(GROUP, self._generation, partition, member))
            if previous is not None and member != previous:
                read = self._positions.get((previous, partition), 0)
                self._positions[member, partition] = read
                number = len(self.history.operations)
                self.history.repositioned.append(
                    Repositioned(number, member, frozenset({partition}))
                )

    def _operation(self, client: str, caller: int = 0, **fields: object) -> Operation:
        invoked = self._now
        self._now += 0.001 * self._random.random() + 1e-6
        operation = Operation(
            len(self.history.operations), client, caller, invoked, self._now, Outcome.OK
        )
        for name, value in fields.items():
            setattr(operation, name, value)
        operation.limit = 10.0
        self.history.operations.append(operation)
        return operation

    def _append(self, partition: Partition, *, committed: bool = True) -> Send:
        self._values += 1
        offset = self._next_offset[partition]
        self._next_offset[partition] += 1
        self.history.log[partition].append(Entry(offset, self._values, committed))
        return Send(partition, self._values, offset)

    def _send(self) -> None:
        send = self._append(self._random.choice(PARTITIONS))
        fields: dict[str, object] = {"sends": (send,)}
        if self._random.random() < 0.05:
            fields |= {"outcome": Outcome.UNKNOWN, "sends": (send._replace(offset=None),)}
        client = f"producer-{self._random.randrange(2)}"
        self._operation(client, self._random.randrange(2), **fields)

    def _transaction(self) -> None:
        commits = self._random.random() < 0.8
        places = [self._random.choice(PARTITIONS) for _ in range(self._random.randint(2, 4))]
        operation = self._operation("transactional")
        operation.sends = tuple(self._append(each, committed=commits) for each in places)
        operation.transactional = True
        operation.outcome = Outcome.OK if commits else Outcome.FAILED
        operation.commit_invoked = operation.completed if commits else None
        self._now += 1e-6
        operation.completed = self._now
        for partition in {*places}:
            self._next_offset[partition] += 1  # the marker

    def _poll(self, client: str | None = None, most: int = 5) -> None:
        client = client or self._random.choice([*self.history.readers])
        owned = [
            partition
            for partition in PARTITIONS
            if client == "alone" or self._owner[partition] == client
        ]
        if not owned:
            return
        reads = []
        for partition in owned:
            position = self._positions.get((client, partition), 0)
            log = self.history.log[partition]
            first = bisect_left(log, position, key=attrgetter("offset"))
            for entry in log[first : first + most]:
                position = entry.offset + 1
                if entry.committed:
                    reads.append(Read(partition, entry.offset, entry.value))
            self._positions[client, partition] = position
        self._operation(client, reads=tuple(reads))

    def _commit(self) -> None:
        partition = self._random.choice(PARTITIONS)
        member = self._owner[partition]
        self._operation(member, commits={partition: self._positions.get((member, partition), 0)})
