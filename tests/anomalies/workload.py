"""A client's work: sends, transactions and a group, while something disturbs it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import confluent_kafka

from aioprod import Admin, TopicPartition
from aioprod.admin import OffsetSpec
from tests.anomalies.clients import CLIENTS, LIMIT_S, Assigned, Member, NewMember, NewSender, Sender
from tests.anomalies.history import Entry, History, Operation, Outcome, Read, Reader, Send
from tests.anomalies.member_process import COMMITS, MemberProcess, MemberTask
from tests.anomalies.recorder import Recorder
from tests.anomalies.schedule import Visit
from tests.interop.programs.reading import read_all

PARTITIONS = 3
GROUP_MEMBERS = 2
GRACE_S = 30.0
"""In this time after the last fault, each sender has to succeed again."""
_IDLE_S = 90.0
"""The longest wait for another record. Partitions of killed members are idle until their sessions
of 45 s (the default of most clients) have ended. So are those of a member that left a classic group
just before its coordinator failed: the next one restores the last stable generation.
"""
_MARKERS_S = 30.0
"""The longest wait for the markers of the last transaction."""
_WORKING_S = 30.0
"""The longest wait for the first success of each of a workload's clients."""
_PAUSE_AFTER_ERROR_S = 0.2
TRANSACTION_MS = 6_000
"""Producers' ``transaction.timeout.ms`` if transactions stay open past it."""
_EXPIRED_S = 3.0
"""In this time the coordinator notices that a transaction has expired, and aborts it."""
_THREADS = 64
"""More than a client that blocks uses, without its callers, so that no call waits for a thread."""
CALLERS = 2

Disturb = Callable[[], Coroutine[Any, Any, None]]


class Workload:
    """One client's senders, transactional sender and group members on one topic.

    Args:
        client: a name in ``CLIENTS``.
        operations: the least number of operations of each sender.
        seed: seed of the partitions, the sizes of transactions, and which are aborted. Each caller
            draws from a source of its own, so that its choices do not depend on the others.
        log_servers: servers that no fault affects much, from which the log is read in the end; by
            default ``servers``.
        pace_s: pause between the operations of a sender.
        visits: members that join and leave, counted from the begin of the disturbance.
        kills: members that join, and are killed some seconds after they have read for the first
            time, counted likewise.
        overdue: moments after which the next transaction stays open past its timeout, counted
            likewise. If there are any, the timeout is that of ``TRANSACTION_MS``.
        callers: the number of tasks that send with the plain sender.

    Attributes:
        killed: the number of members that have been killed.
    """

    def __init__(
        self,
        client: str,
        servers: str,
        topic: str,
        operations: int,
        seed: int,
        *,
        partitions: int = PARTITIONS,
        log_servers: str | None = None,
        pace_s: float = 0.0,
        visits: Sequence[Visit] = (),
        kills: Sequence[Visit] = (),
        overdue: Sequence[float] = (),
        callers: int = CALLERS,
    ) -> None:
        self._client = client
        self._servers = servers
        self._topic = topic
        self._operations = operations
        self._seed = seed
        self._partitions = partitions
        self._log_servers = log_servers or servers
        self._pace_s = pace_s
        self._visits = visits
        self._kills = kills
        self.killed = 0
        self._faults_over = asyncio.Event()
        self._overdue = sorted(overdue, reverse=True)
        self._transaction_ms = TRANSACTION_MS if overdue else None
        self._callers = callers
        self._began = math.inf
        self._group = f"{topic}-group"
        self._values = 0
        self._unknown_generations = 0
        self._faults_ended: float | None = None
        self._recorder = Recorder()

    async def run(self, disturb: Disturb, begin: Disturb | None = None) -> History:
        """Run all clients. Once each of them works and ``begin`` has returned, something disturbs
        them. Go on until each sender has succeeded again, read to the end, and return the history.
        """
        asyncio.get_running_loop().set_default_executor(
            ThreadPoolExecutor(_THREADS + self._callers)
        )
        new_sender, new_member = CLIENTS[self._client].load()
        members = {
            name: self._new_member(new_member, name)
            for name in (f"member-{number}" for number in range(GROUP_MEMBERS))
        }
        sender = new_sender(self._servers, self._topic, None, None)
        history = self._recorder.history
        try:
            for name, member in members.items():
                await self._start(name, member)
            await self._start("sender", sender)
            done = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                reading = [
                    tasks.create_task(self._read(name, member, done))
                    for name, member in members.items()
                ]
                async with asyncio.TaskGroup() as sending:
                    sending.create_task(self._disturb(disturb, begin, new_member))
                    for caller in range(self._callers):
                        sending.create_task(self._send(sender, caller))
                    sending.create_task(self._transact(new_sender))
                await self._finish_transactions()
                await self._wait_for_markers()
                await self._add_log()
                await self._wait_for_readers()
                done.set()
                await asyncio.gather(*reading)
        finally:
            await asyncio.gather(
                self._close("sender", sender),
                *(self._close(name, member) for name, member in members.items()),
            )
        history.final_polls = {self._group}
        history.faults_ended, history.grace = self._faults_ended, GRACE_S
        history.ended = self._recorder.clock()
        return history

    async def _disturb(
        self, disturb: Disturb, begin: Disturb | None, new_member: NewMember
    ) -> None:
        await self._until_working()
        if begin is not None:
            await begin()
        self._began = self._recorder.clock()
        async with asyncio.TaskGroup() as visiting:
            for number, visit in enumerate(self._visits):
                visiting.create_task(self._visit(number, visit, new_member))
            for number, visit in enumerate(self._kills):
                visiting.create_task(self._visit_and_be_killed(number, visit))
            await disturb()
            self._faults_ended = self._recorder.clock()
            self._faults_over.set()

    async def _until_working(self) -> None:
        """Wait until each sender's callers, and one of the members, have succeeded."""
        callers = {*range(self._callers)}
        until = self._recorder.clock() + _WORKING_S
        while self._recorder.clock() < until:
            operations = self._recorder.history.operations
            sent = [each for each in operations if each.outcome is Outcome.OK and each.sends]
            if (
                callers == {each.caller for each in sent if each.client == "sender"}
                and any(each.transactional for each in sent)
                and any(each.reads for each in operations)
            ):
                return
            await asyncio.sleep(0.05)

    async def _visit(self, number: int, visit: Visit, new_member: NewMember) -> None:
        """Join the group, read, and leave it."""
        await asyncio.sleep(visit.at)
        if self._faults_ended is not None:
            return
        name = f"visitor-{number}"
        member = self._new_member(new_member, name)
        await self._start(name, member)
        leaves = self._recorder.clock() + visit.seconds
        while self._recorder.clock() < leaves and self._faults_ended is None:
            await self._poll(name, member)
        await self._close(name, member)

    async def _visit_and_be_killed(self, number: int, visit: Visit) -> None:
        """Join the group in another process, read, and be killed, at the latest when the faults
        end.
        """
        if await self._over_within(visit.at):
            return
        name = f"killed-{number}"
        self._recorder.history.readers[name] = Reader(self._group)
        task = MemberTask(
            self._client, self._servers, self._topic, self._group, f"{self._seed}/{name}"
        )
        async with MemberProcess.running(
            task, self._recorder, name, self._assigned_to(name)
        ) as process:
            await _either(process.reads, self._faults_over)
            await self._over_within(visit.seconds)
        self.killed += 1

    async def _over_within(self, seconds: float) -> bool:
        """Wait for some seconds. Return early, and true, if the faults end meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                return await self._faults_over.wait()
        except TimeoutError:
            return False

    def _new_member(self, new_member: NewMember, name: str) -> Member:
        self._recorder.history.readers[name] = Reader(self._group)
        return new_member(self._servers, self._topic, self._group, self._assigned_to(name))

    def _goes_on(self, operations: int, last_success: float) -> bool:
        """Return whether a sender that did this many operations has to do another one."""
        ended = self._faults_ended
        if ended is None:
            return True
        if last_success < ended:
            return self._recorder.clock() < ended + GRACE_S
        return operations < self._operations

    async def _pause(self, operation: Operation) -> None:
        failed = operation.outcome is Outcome.UNKNOWN
        await asyncio.sleep(_PAUSE_AFTER_ERROR_S if failed else self._pace_s)

    async def _start(self, name: str, client: Sender | Member) -> None:
        async with self._recorder.operation(name, 0, LIMIT_S, lifecycle=True):
            await client.start()

    async def _close(self, name: str, client: Sender | Member) -> None:
        async with self._recorder.operation(name, 0, LIMIT_S, lifecycle=True):
            await client.close()

    def _random(self, caller: str) -> Random:
        return Random(f"{self._seed}/{caller}")

    def _next(self, operation: Operation, random: Random) -> Send:
        self._values += 1
        partition = random.randrange(self._partitions)
        send = Send(self._name(partition), self._values)
        operation.sends = (*operation.sends, send)
        return send

    def _name(self, partition: int) -> str:
        return f"{self._topic}/{partition}"

    def _assigned_to(self, member: str) -> Assigned:
        def assigned(generation: int | None, partitions: list[int]) -> None:
            if generation is None:
                self._unknown_generations += 1
                generation = -self._unknown_generations
            named = map(self._name, partitions)
            self._recorder.assigned(member, self._group, generation, named)

        return assigned

    async def _send(self, sender: Sender, caller: int) -> None:
        operations, last_success = 0, -math.inf
        random = self._random(f"sender {caller}")
        while self._goes_on(operations, last_success):
            async with self._recorder.operation("sender", caller, LIMIT_S) as operation:
                await self._send_next(sender, operation, random)
            operations += 1
            if operation.outcome is Outcome.OK:
                last_success = operation.invoked
            await self._pause(operation)

    async def _send_next(self, sender: Sender, operation: Operation, random: Random) -> None:
        send = self._next(operation, random)
        offset = await sender.send(int(send.partition.rpartition("/")[2]), send.value)
        operation.sends = (*operation.sends[:-1], send._replace(offset=offset))

    async def _transact(self, new_sender: NewSender) -> None:
        """Send in transactions; after an error, with a new producer, which fences the old one."""
        operations, last_success, caller = 0, -math.inf, 0
        random = self._random("transactional")
        while self._goes_on(operations * 3, last_success):
            sender = self._new_transactional(new_sender)
            async with self._recorder.operation(
                "transactional", caller, LIMIT_S, lifecycle=True
            ) as operation:
                await sender.start()
            while operation.outcome is not Outcome.UNKNOWN and self._goes_on(
                operations * 3, last_success
            ):
                operation = await self._transaction(sender, caller, random)
                operations += 1
                if operation.outcome is Outcome.OK:
                    last_success = operation.invoked
                await self._pause(operation)
            await self._close("transactional", sender)
            await self._pause(operation)
            caller += 1

    def _new_transactional(self, new_sender: NewSender) -> Sender:
        identity = self._servers, self._topic, self._transactional_id
        return new_sender(*identity, self._transaction_ms)

    def _stays_open_s(self) -> float:
        """Return the seconds for which the next transaction stays open after its last send."""
        if self._overdue and self._recorder.clock() - self._began >= self._overdue[-1]:
            self._overdue.pop()
            return TRANSACTION_MS / 1000 + _EXPIRED_S
        return 0.0

    @property
    def _transactional_id(self) -> str:
        return f"{self._topic}-id"

    async def _transaction(self, sender: Sender, caller: int, random: Random) -> Operation:
        commits, sends = random.random() < 0.8, random.randint(2, 4)
        stays_open_s = self._stays_open_s()
        limit = LIMIT_S * (sends + 1) + stays_open_s  # each call has this time
        async with self._recorder.operation(
            "transactional", caller, limit, transactional=True
        ) as operation:
            await sender.begin()
            for _ in range(sends):
                await self._send_next(sender, operation, random)
            await asyncio.sleep(stays_open_s)
            if commits:
                operation.commit_invoked = self._recorder.clock()
            await sender.end(commit=commits)
            operation.outcome = Outcome.OK if commits else Outcome.FAILED
        return operation

    async def _read(self, name: str, member: Member, done: asyncio.Event) -> None:
        random = self._random(name)
        while not done.is_set():
            await self._poll(name, member)
            if random.random() < COMMITS:
                async with self._recorder.operation(name, 0, LIMIT_S) as operation:
                    committed = await member.commit()
                    operation.commits = {
                        self._name(partition): offset for partition, offset in committed.items()
                    }

    async def _poll(self, name: str, member: Member) -> None:
        async with self._recorder.operation(name, 0, LIMIT_S) as operation:
            operation.reads = tuple(
                Read(self._name(partition), offset, value)
                for partition, offset, value in await member.poll()
            )
        await self._pause(operation)

    async def _finish_transactions(self) -> None:
        """Abort a transaction that was left open, as a restarted application does: committed
        records after it can't be read.
        """
        last = [each for each in self._recorder.history.operations if each.transactional]
        if last and last[-1].outcome is Outcome.UNKNOWN:
            await asyncio.to_thread(_fence, self._log_servers, self._transactional_id)

    async def _wait_for_markers(self) -> None:
        """Wait until no transaction is open. A coordinator acknowledges the end of a transaction
        before its markers are in all partitions, and readers of committed records end before them.
        """
        partitions = [TopicPartition(self._topic, each) for each in range(self._partitions)]
        latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
        until = self._recorder.clock() + _MARKERS_S
        async with Admin(self._log_servers) as admin:
            while self._recorder.clock() < until:
                committed = await admin.list_offsets(latest, isolation_level="read_committed")
                ends = await admin.list_offsets(latest)
                if not (ends.errors or committed.errors) and all(
                    committed[each].offset == ends[each].offset for each in partitions
                ):
                    return
                await asyncio.sleep(0.05)

    async def _add_log(self) -> None:
        found = {
            committed_only: await read_all(
                self._log_servers, self._topic, self._partitions, committed_only=committed_only
            )
            for committed_only in (False, True)
        }
        committed = {(each.partition, each.offset) for each in found[True]}
        log = {self._name(partition): list[Entry]() for partition in range(self._partitions)}
        for each in found[False]:
            value = int(each.value or b"-1")
            entry = Entry(each.offset, value, (each.partition, each.offset) in committed)
            log[self._name(each.partition)].append(entry)
        self._recorder.history.log = log

    async def _wait_for_readers(self) -> None:
        """Let the members read on while they get records. The checker judges what they did."""
        history = self._recorder.history
        expected = {
            entry.value for entries in history.log.values() for entry in entries if entry.committed
        }
        idle_since = now = self._recorder.clock()
        judged = missing = 0
        while now - idle_since < _IDLE_S:
            ended = len(history.operations) - 2 * GROUP_MEMBERS  # the last ones may still run
            for operation in history.operations[judged:]:
                expected.difference_update(read.value for read in operation.reads)
            judged = max(judged, ended)
            if not expected:
                return
            if len(expected) != missing:
                missing, idle_since = len(expected), now
            await asyncio.sleep(0.05)
            now = self._recorder.clock()


async def _either(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(each.wait()) for each in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


def _fence(servers: str, transactional_id: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
    )
    try:
        producer.init_transactions(LIMIT_S)
    finally:
        producer.close()
