"""The scenarios of groups: faults of the cluster, of members and of the network."""

from __future__ import annotations

import asyncio
import time

from aioprod import Admin
from aioprod.protocol.api_keys import ApiKey
from tests.faults.harness import scenarios
from tests.faults.harness.cluster_control import PARTITIONS, SECONDS, partitions_of, replicas_of
from tests.faults.harness.groups.runner import SESSION_SECONDS, GroupControl
from tests.testing.fault_proxy import CutAnswer, CutRequest, Fault, Keep, Plan

#: The handler of a busy member takes longer than its max.poll.interval.ms.
MAX_POLL_SECONDS = 8.0
BUSY_SECONDS = 14.0
#: Longer than the session of members.
FROZEN_SECONDS = 15.0
CUT_SECONDS = max(12.0, SECONDS / 2)
#: Longer than request_timeout_ms, too.
LONG_CUT_SECONDS = 60.0
#: Shorter than the session of a node, so that the follower stays in sync and may lead.
_BEHIND_SECONDS = 1.5
ADDED_PARTITIONS = 3
_ROUNDS = max(1, round(SECONDS / 25))
# After a fault of members: the session, the rebalance, and time to see what follows.
_AFTERMATH_SECONDS = SESSION_SECONDS + 8
_GROUP_APIS = (
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
)


async def quiet(groups: GroupControl) -> None:
    """No fault: measures the gaps of this machine."""
    groups.fault("none")
    await asyncio.sleep(SECONDS / 3)


async def kill_leader(groups: GroupControl) -> None:
    """kill -9 of a node that leads partitions and coordinates nothing."""
    for _ in range(_ROUNDS):
        await scenarios.kill_node(groups, await groups.plain_node())


async def kill_coordinator(groups: GroupControl) -> None:
    """kill -9 of the coordinator of all groups, which leads partitions, too."""
    for _ in range(_ROUNDS):
        await scenarios.kill_node(groups, await groups.coordinator(), ", the coordinator")


async def promote_follower(groups: GroupControl) -> None:
    """A follower that is behind becomes the leader: it freezes, and continues when kill -9 has
    ended the leader.
    """
    for _ in range(_ROUNDS):
        leader = await groups.plain_node()
        follower = replicas_of(partitions_of(leader)[0])[1]
        groups.cluster.pause(follower)
        await asyncio.sleep(_BEHIND_SECONDS)
        asyncio.get_running_loop().call_later(0.1, groups.cluster.resume, follower)
        await scenarios.kill_node(groups, leader, ", its follower is behind")


async def freeze_coordinator(groups: GroupControl) -> None:
    """SIGSTOP of the coordinator of all groups, which leads partitions, too."""
    for _ in range(_ROUNDS):
        await scenarios.freeze_node(groups, await groups.coordinator(), ", the coordinator")


async def kill_members(groups: GroupControl) -> None:
    """kill -9 of a member of each group; later another one joins."""
    for _ in range(_ROUNDS):
        groups.member_fault("kill -9 of a member", lambda member: member.kill())
        await asyncio.sleep(_AFTERMATH_SECONDS)
        for group in groups.groups:
            await asyncio.to_thread(group.start_member)
        await asyncio.sleep(6)


async def freeze_members(groups: GroupControl) -> None:
    """SIGSTOP of a member of each group for longer than its session."""
    for _ in range(_ROUNDS):
        frozen = groups.member_fault(
            f"SIGSTOP of a member for {FROZEN_SECONDS:g} s", lambda member: member.freeze()
        )
        await asyncio.sleep(FROZEN_SECONDS)
        for _, member in frozen:
            member.resume()
        await asyncio.sleep(8)


async def busy_members(groups: GroupControl) -> None:
    """The handler of a member takes longer than max.poll.interval.ms."""
    for _ in range(_ROUNDS):
        groups.member_fault(
            f"a handler takes {BUSY_SECONDS:g} s", lambda member: member.make_busy()
        )
        await asyncio.sleep(BUSY_SECONDS + 8)


async def storm(groups: GroupControl) -> None:
    """Every second a member of each group joins or leaves."""
    until = time.monotonic() + SECONDS / 2
    while time.monotonic() < until:
        groups.fault("a member joins")
        for group in groups.groups:
            await asyncio.to_thread(group.start_member)
        await asyncio.sleep(2)
        groups.fault("a member leaves")
        await asyncio.gather(*(group.running[0].leave() for group in groups.groups))
        await asyncio.sleep(1)
    await asyncio.sleep(5)


async def add_partitions(groups: GroupControl) -> None:
    """The topics get more partitions; these are the affected ones."""
    count = PARTITIONS + ADDED_PARTITIONS
    added = range(PARTITIONS, count)
    async with Admin(groups.cluster.bootstrap_servers) as admin:
        await admin.create_partitions(dict.fromkeys(groups.topics, count))
    groups.writer.add(groups.topics, added)
    groups.fault("partitions are added")
    groups.faults[-1].partitions = list(added)
    await asyncio.sleep(SECONDS / 4)
    await groups.until_all_read(time.monotonic(), count)


async def recreate_topics(groups: GroupControl) -> None:
    """The topics are deleted and made again with the same names."""
    for _ in range(max(1, _ROUNDS - 1)):
        await groups.writer.pause()
        async with Admin(groups.cluster.bootstrap_servers) as admin:
            await admin.delete_topics(groups.topics)
        groups.writer.forget()
        await asyncio.sleep(1)
        for topic in groups.topics:
            await groups.create_topic(topic, 3)
        groups.writer.add(groups.topics, range(PARTITIONS))
        groups.fault("topics are deleted and made again")
        await asyncio.sleep(SECONDS / 4)


async def roll(groups: GroupControl) -> None:
    """Rolling restart: each node is shut down gracefully and restarted."""
    await scenarios.roll(groups)


def cuts(moments: list[float]) -> Plan:
    """Connections are cut at each kind of request: some before it arrived, some before its
    response.
    """
    return scenarios.PeriodicFaults(
        moments,
        8.0,
        CutRequest(5),
        CutAnswer(0),
        CutRequest(0, reset=True),
        CutAnswer(4, reset=True),
        apis=_GROUP_APIS,
    )


async def come_and_go(groups: GroupControl) -> None:
    """Members come and go from time to time, so that all kinds of requests are sent."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for group in groups.groups:
            await asyncio.to_thread(group.start_member)
        await asyncio.sleep(5)
        await asyncio.gather(*(group.running[0].leave() for group in groups.groups))
        await asyncio.sleep(5)


class NetworkCut:
    """The plan of proxies that pass nothing for a while, and the scenario that decides when."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._healed: asyncio.Event | None = None

    def plan(self, _: list[float]) -> Plan:
        """Return the plan of a group's proxies."""

        def kept_back(_api_key: int, _size: int) -> Fault | None:
            return Keep(self._healed) if self._healed is not None else None

        return kept_back

    async def run(self, groups: GroupControl) -> None:
        """Cut all members off; the fault is the end of the cut."""
        self._healed = asyncio.Event()
        began = time.monotonic()
        await asyncio.sleep(self.seconds)
        groups.fault(f"the network is back after {self.seconds:g} s")
        self._healed.set()
        self._healed = None
        groups.excused.append((began, time.monotonic()))
        await asyncio.sleep(20)
