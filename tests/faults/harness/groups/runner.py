"""Run fault scenarios with groups: a real cluster of three nodes, and groups of three members of
each client in each protocol, side by side.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from aioprod.cluster.client import ClusterClient
from tests.faults.harness.cluster_control import (
    NODES,
    PARTITIONS,
    ClusterControl,
    Fault,
)
from tests.faults.harness.groups.judge import (
    Verdict,
    Written,
    acknowledgements,
    first_processed,
    judge,
    timeline,
)
from tests.faults.harness.groups.ledger import Ledger
from tests.faults.harness.groups.member import COOPERATIVE, EAGER, KIP_848, Settings
from tests.faults.harness.groups.members import Group, MemberProcess
from tests.faults.harness.groups.writer import Writer
from tests.testing.fault_proxy import Plan

MEMBERS = 3
#: The session of members; the broker's, with KIP-848, is the same (`BROKER_SETTINGS`).
SESSION_SECONDS = 6.0
BROKER_SETTINGS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
}
#: aiokafka has eager groups only.
CELLS: tuple[tuple[str, str], ...] = (
    ("aioprod", EAGER),
    ("aiokafka", EAGER),
    ("confluent-kafka", EAGER),
    ("aioprod", COOPERATIVE),
    ("confluent-kafka", COOPERATIVE),
    ("aioprod", KIP_848),
    ("confluent-kafka", KIP_848),
)
PROTOCOLS = (EAGER, COOPERATIVE, KIP_848)
_OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_PARTITIONS = 5
_READY_SECONDS = 60.0
_FINISH_SECONDS = 45.0


@dataclass
class GroupResult:
    """The result of a group in a scenario.

    Attributes:
        gaps: the gap of each affected partition after each fault.
        own_gaps: these without the time in which the partition acknowledged no record either: the
            cluster's part, such as the second after which a follower asks its new leader.
        leave_seconds: the longest time that a member took to leave at the end.
    """

    client: str
    protocol: str
    faults: int
    verdict: Verdict
    gaps: list[float]
    own_gaps: list[float]
    leave_seconds: float

    @property
    def median_gap(self) -> float:
        """The median gap; 0 if no partition was affected."""
        return median(self.gaps) if self.gaps else 0.0

    @property
    def median_own_gap(self) -> float:
        """The median of ``own_gaps``; 0 if no partition was affected."""
        return median(self.own_gaps) if self.own_gaps else 0.0

    @property
    def longest_gap(self) -> float:
        """The longest gap."""
        return max(self.gaps, default=0.0)


@dataclass
class GroupOutcome:
    """The outcome of a scenario."""

    scenario: str
    faults: list[Fault]
    results: list[GroupResult] = field(default_factory=list)

    def best_other(self, protocol: str) -> float:
        """Return the shortest median of the own gaps of other clients that lost no record."""
        return min(
            (
                result.median_own_gap
                for result in self.results
                if result.protocol == protocol
                and result.client != "aioprod"
                and not result.verdict.lost
            ),
            default=float("inf"),
        )


class GroupControl(ClusterControl):
    """Runs scenarios with groups, one at a time.

    Attributes:
        groups: the groups of the scenario.
        excused: times in which no member can read.
        writer: writes the records.
    """

    groups: list[Group]
    excused: list[tuple[float, float]]
    writer: Writer

    async def coordinator(self) -> int:
        """Return the node that coordinates all groups of the scenario."""
        async with ClusterClient(self.cluster.bootstrap_servers) as client:
            info = (await client.refresh_topics([_OFFSETS_TOPIC])).topics[_OFFSETS_TOPIC]
            return info.partitions[0].leader

    async def plain_node(self) -> int:
        """Return a node that is neither the active controller nor the groups' coordinator."""
        others = {self.cluster.active_controller(), await self.coordinator()}
        return next(node for node in NODES if node not in others)

    def member_fault(
        self, what: str, act: Callable[[MemberProcess], None]
    ) -> list[tuple[Group, MemberProcess]]:
        """Do something to one member of each group; its partitions are affected."""
        now = time.monotonic()
        hit = [(group, group.oldest()) for group in self.groups]
        affected = {group.name: member.ledger().owned_at(now) for group, member in hit}
        self.faults.append(Fault(what, time.monotonic(), None, affected))
        for _, member in hit:
            act(member)
        return hit

    async def until_all_read(self, since: float, partitions: int = PARTITIONS) -> None:
        """Wait until each group has processed a record of each partition since a time."""
        async with asyncio.timeout(_READY_SECONDS):
            while not all(  # noqa: ASYNC110 - files that other processes write
                self._is_read(group.ledgers(), since, partitions) for group in self.groups
            ):
                await asyncio.sleep(0.3)

    @staticmethod
    def _is_read(ledgers: Sequence[Ledger], since: float, partitions: int) -> bool:
        recent = {
            partition for (partition, _), at in first_processed(ledgers).items() if at >= since
        }
        return len(recent) >= partitions

    # -- a scenario --------------------------------------------------------------------------------

    async def run(
        self,
        name: str,
        scenario: Callable[[GroupControl], Awaitable[None]],
        *,
        protocols: Sequence[str] = PROTOCOLS,
        plan: Callable[[list[float]], Plan] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> GroupOutcome:
        """Run a scenario, let the groups process everything, and judge them.

        Args:
            plan: returns the plan of the proxies of a group, as for `ScenarioRunner.run`; with it
                there can be one protocol.
            settings: settings of all members.
        """
        self.faults, self.topics, self.groups, self.excused = [], [], [], []
        moments: dict[str, list[float]] = {}
        async with AsyncExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            cells = [cell for cell in CELLS if cell[1] in protocols]
            for number, (client, protocol) in enumerate(cells):
                title = f"{client} {protocol}"
                topic = f"{name}-{title.replace(' ', '-')}-{time.time_ns()}"
                await self.create_topic(topic, 3)
                self.topics.append(topic)
                servers = self.cluster.bootstrap_servers
                if plan is not None:
                    times = moments[title] = []
                    servers = await stack.enter_async_context(self.proxied(number, plan(times)))
                chosen = Settings(
                    client, protocol, servers, topic, group_id(topic), "", **(settings or {})
                )
                self.groups.append(Group(title, chosen, directory))
            self.writer = await stack.enter_async_context(self._writing())
            await stack.enter_async_context(self._members())
            await scenario(self)
            ended = time.monotonic()
            await self.writer.pause()
            await self._until_idle()
            await asyncio.gather(
                *(member.leave() for group in self.groups for member in group.running)
            )
            outcome = GroupOutcome(name, list(self.faults))
            for group in self.groups:
                outcome.results.append(self._result(group, moments.get(group.name), ended))
        await self.restore()
        return outcome

    def _result(self, group: Group, moments: Sequence[float] | None, ended: float) -> GroupResult:
        ledgers = group.ledgers()
        faults = [Fault("proxy", moment) for moment in moments] if moments else self.faults
        written = self.writer.written[group.topic]
        read, acknowledged = timeline(ledgers), acknowledgements(written)
        gaps, own_gaps = [], []
        for fault, until in zip(faults, [*(f.at for f in faults[1:]), ended], strict=True):
            for partition in fault.affected(group.name, range(PARTITIONS)):
                gap = read.gap(fault.at, until, [partition])
                gaps.append(gap)
                own_gaps.append(max(0.0, gap - acknowledged.gap(fault.at, until, [partition])))
        left = [member.left_seconds or 0.0 for member in group.members]
        return GroupResult(
            group.settings.client,
            group.settings.protocol,
            len(faults),
            judge(written, ledgers, self.excused),
            gaps,
            own_gaps,
            max(left, default=0.0),
        )

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[Writer]:
        writer = Writer(self.cluster.bootstrap_servers)
        await writer.start()
        try:
            writer.add(self.topics, range(PARTITIONS))
            yield writer
        finally:
            await writer.close()

    @asynccontextmanager
    async def _members(self) -> AsyncIterator[None]:
        """Start the members, and wait until all own partitions and read."""
        try:
            for _ in range(MEMBERS):
                for group in self.groups:
                    await asyncio.to_thread(group.start_member)
                await asyncio.sleep(1)
            async with asyncio.timeout(_READY_SECONDS):
                while not all(  # noqa: ASYNC110 - files that other processes write
                    member.ledger().owned_at(time.monotonic())
                    for group in self.groups
                    for member in group.members
                ):
                    await asyncio.sleep(0.3)
            await self.until_all_read(time.monotonic())
            await asyncio.sleep(2)
            yield
        finally:
            for group in self.groups:
                for member in group.members:
                    await asyncio.to_thread(member.kill)

    async def _until_idle(self) -> None:
        """Wait until all groups have processed everything, or for the longest time."""
        deadline = time.monotonic() + _FINISH_SECONDS
        while time.monotonic() < deadline:
            if all(
                not missing(self.writer.written[group.topic], group.ledgers())
                for group in self.groups
            ):
                return
            await asyncio.sleep(0.3)


def missing(written: Sequence[Written], ledgers: Sequence[Ledger]) -> bool:
    """Return whether a record was not processed yet."""
    first = first_processed(ledgers)
    return any((record.partition, record.number) not in first for record in written)


def group_id(name: str) -> str:
    """Return a group id for which the same node is the coordinator as for all others."""
    number = 0
    while abs(java_hash(f"{name}-{number}")) % _OFFSETS_PARTITIONS:
        number += 1
    return f"{name}-{number}"


def java_hash(text: str) -> int:
    """Return Java's hash of a string, by which Kafka chooses the coordinator."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
