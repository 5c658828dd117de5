"""Run a seed of groups: a cluster, members that come and go, faults, a time without faults in which
everything must be read, and the checks of the history.
"""

from __future__ import annotations

import asyncio
from functools import partial

from aioprod import Producer
from aioprod.testing import EmbeddedCluster, GroupSettings
from aioprod.testing.simulation.loop import SimulatedLoop
from aioprod.types import TopicPartition
from tests.simulation.groups.broker_watch import BrokerWatch
from tests.simulation.groups.checkers import check
from tests.simulation.groups.faults import GroupFaults
from tests.simulation.groups.history import FinalState, GroupHistory
from tests.simulation.groups.members import GroupActor
from tests.simulation.groups.scenario import (
    CONSUMER,
    GROUP,
    GroupScenario,
    MemberPlan,
    draw,
)
from tests.simulation.history import Moment
from tests.simulation.run_context import RunContext
from tests.simulation.seed_run import SimulationResult, run_seed

#: What was sent by a member that closed without time arrives meanwhile.
_LAST_REQUESTS_SECONDS = 0.1
_PAUSE_SECONDS = 0.05
_READ_SLACK_SECONDS = 25.0
_PROBE_SECONDS = 5.0
# Longer than stall_timeout_ms: a member without records to read is not stalled.
_QUIET_SECONDS = 5.0


def simulate_group(
    seed: int, *, protocol: str | None = None, hostile: bool = False
) -> SimulationResult:
    """Run a seed and check its history.

    Args:
        protocol: the group protocol; None: the seed decides.
        hostile: run ready tasks in random order.
    """
    scenario = draw(seed, protocol)
    history = GroupHistory(
        epochs=scenario.protocol == CONSUMER,
        peaceful=scenario.peaceful,
        lossless=not scenario.loses_responses,
    )
    return run_seed(
        f"groups --protocol {scenario.protocol}",
        scenario,
        history,
        partial(_run, scenario=scenario, history=history),
        partial(check, history),
        hostile=hostile,
    )


async def _run(loop: SimulatedLoop, scenario: GroupScenario, history: GroupHistory) -> None:
    cluster = EmbeddedCluster(
        nodes=scenario.nodes,
        wall_clock=loop.wall_clock,
        random_source=loop.random("cluster"),
        groups=GroupSettings(
            initial_rebalance_delay_ms=scenario.initial_delay_ms,
            min_session_timeout_ms=100,
            consumer_session_timeout_ms=scenario.session_ms,
            consumer_heartbeat_interval_ms=scenario.heartbeat_ms,
        ),
    )
    async with cluster:
        for topic, count in scenario.partitions.items():
            cluster.create_topic(topic, count)
        await _GroupRun(RunContext(loop, cluster, history), scenario, history).run()


class _GroupRun:
    """One run: its members, its writer, its faults and its end."""

    def __init__(self, context: RunContext, scenario: GroupScenario, history: GroupHistory) -> None:
        self._context = context
        self._cluster = context.cluster
        self._scenario = scenario
        self._history = history
        self._watch = BrokerWatch(context.cluster, history)
        self._written = 0
        self._actors: dict[GroupActor, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Run it to its end."""
        loop, scenario = self._context.loop, self._scenario
        for plan in scenario.members:
            self._add(plan)
        with loop.network.host("writer"):
            others = [
                loop.create_task(self._write(), name="writer"),
                loop.create_task(self._add_partitions(), name="added partitions"),
                loop.create_task(asyncio.sleep(scenario.seconds)),
            ]
        await GroupFaults(self._context, scenario).run()
        repaired = self._history.note("no faults from now on", "fault")
        await asyncio.gather(*others)
        await asyncio.gather(
            *(task for actor, task in self._actors.items() if actor.plan.leaves_after is not None)
        )
        if not any(actor.running for actor in self._actors):
            self._add(scenario.late)
        await self._read_the_rest(repaired)
        await asyncio.gather(*self._actors.values())
        await asyncio.sleep(_LAST_REQUESTS_SECONDS)
        self._look_after_the_end()

    def _add(self, plan: MemberPlan) -> None:
        actor = GroupActor(self._context, self._history, plan)
        instances = [each.instance for each in self._scenario.members]
        actor.trace.may_be_fenced = plan.instance is not None and (
            instances.count(plan.instance) > 1
        )
        self._actors[actor] = self._context.start_on_host(plan.name, actor.run())

    # -- records and partitions --------------------------------------------------------------------

    async def _write(self) -> None:
        rng = self._context.loop.random("writer")
        async with self._producer() as producer:
            for _ in range(self._scenario.records):
                topic = rng.choice(list(self._scenario.partitions))
                count = len(self._cluster.topics[topic].partitions)
                await self._send(producer, TopicPartition(topic, rng.randrange(count)))
                if rng.random() < 0.3:
                    await asyncio.sleep(
                        rng.uniform(0, 6 * self._scenario.seconds / self._scenario.records)
                    )

    def _producer(self) -> Producer:
        return Producer(
            self._context.bootstrap_servers,
            client_id="writer",
            request_timeout_ms=1_000,
            max_block_ms=60_000,
            linger_ms=0,
            metadata_max_age_ms=200,
        )

    async def _send(self, producer: Producer, tp: TopicPartition) -> None:
        self._written += 1
        await producer.send(tp.topic, b"%d" % self._written, partition=tp.partition)

    async def _add_partitions(self) -> None:
        begun = self._context.loop.time()
        for at, topic in self._scenario.added:
            await asyncio.sleep(max(0.0, begun + at - self._context.loop.time()))
            count = len(self._cluster.topics[topic].partitions) + 1
            self._history.note(f"fault: {topic} gets {count} partitions", "fault")
            self._cluster.add_partitions(topic, count)

    def _ends(self) -> dict[TopicPartition, int]:
        """The ends of the partitions that a member subscribes to."""
        return {
            tp: max(log) + 1
            for tp, log in self._logs().items()
            if log
            and any(actor.running and tp.topic in actor.plan.topics for actor in self._actors)
        }

    def _logs(self) -> dict[TopicPartition, dict[int, int]]:
        return {
            TopicPartition(topic, number): {
                record.offset: int(record.value or b"-1")
                for record in self._cluster.records(topic, number)
            }
            for topic in self._scenario.partitions
            for number in range(len(self._cluster.topics[topic].partitions))
        }

    # -- the end -----------------------------------------------------------------------------------

    async def _read_the_rest(self, repaired: Moment) -> None:
        """Everything must be read and committed within a limit, and new records at once."""
        scenario = self._scenario
        for actor in self._actors:
            actor.calm_down()
        limit = scenario.session_s + 2 * scenario.max_poll_s + _READ_SLACK_SECONDS
        final = self._history.final = FinalState(repaired, limit)
        await self._until_idle(limit)
        final.unread = self._behind()
        if not final.unread:
            self._cluster.rebalance_group(GROUP)
            await self._until_idle(limit)
            await asyncio.sleep(_QUIET_SECONDS)
            self._look_at_members(final)
            await self._probe(final)
        for actor in self._actors:
            actor.end()

    async def _until_idle(self, limit: float) -> None:
        """Wait until everything is read and committed, and the members read their shares."""
        deadline = self._context.loop.time() + limit
        while self._behind() or self._unfinished():
            if self._context.loop.time() > deadline:
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    def _behind(self) -> dict[TopicPartition, str]:
        committed = self._cluster.committed_offsets(GROUP)
        return {
            tp: self._known_of(tp, committed.get(tp, 0), end)
            for tp, end in self._ends().items()
            if committed.get(tp, 0) < end
        }

    def _known_of(self, tp: TopicPartition, committed: int, end: int) -> str:
        owners = [
            f"{actor.plan.name} reads it from {actor.positions.get(tp)} on, {actor.state or 'well'}"
            for actor in self._actors
            if actor.running and tp in actor.consumer.assignment()
        ]
        return f"{committed} of {end} committed; {', '.join(owners) or 'no member reads it'}"

    def _unfinished(self) -> bool:
        """Return whether members that have ended are in the group, or others read something else
        than their share.
        """
        if GROUP not in self._cluster.group_ids:
            return True  # no member has joined yet
        group = self._cluster.group(GROUP)
        present = {self._watch.owners.get(member_id) for member_id in group.members}
        running = [actor for actor in self._actors if actor.running]
        return (
            group.state != "Stable"
            or present != {actor.plan.name for actor in running}
            or any(
                actor.state or actor.consumer.assignment() != self._share(actor)
                for actor in running
            )
        )

    def _share(self, actor: GroupActor) -> frozenset[TopicPartition]:
        return frozenset(
            tp
            for member_id, member in self._cluster.group(GROUP).members.items()
            if self._watch.owners.get(member_id) == actor.plan.name
            for tp in member.partitions or ()
        )

    async def _probe(self, final: FinalState) -> None:
        loop = self._context.loop
        ends = self._ends()
        with loop.network.host("writer"):
            async with self._producer() as producer:
                for tp in ends:
                    await self._send(producer, tp)
        deadline = loop.time() + _PROBE_SECONDS
        while unread := [
            tp
            for tp, end in ends.items()
            if all(actor.reached.get(tp, 0) <= end for actor in self._actors)
        ]:
            if loop.time() > deadline:
                final.unprobed = unread
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    def _look_at_members(self, final: FinalState) -> None:
        for actor in self._actors:
            if actor.running:
                name = actor.plan.name
                final.assignments[name] = actor.consumer.assignment(), self._share(actor)
                if actor.state:
                    final.troubled[name] = actor.state

    def _look_after_the_end(self) -> None:
        self._history.logs = self._logs()
        final = self._history.final
        assert final is not None
        for member_id, member in self._cluster.group(GROUP).members.items():
            name = self._watch.owners.get(member_id, member_id)
            if member.instance_id is None and name in final.assignments:
                final.present.append(name)
