"""Run a seed of a share group: a cluster, members that come and go, faults, a time without faults
in which everything must be done, and the checks of the history.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

from aioprod import Admin, Producer
from aioprod.admin import ConfigResource
from aioprod.testing import EmbeddedCluster
from aioprod.testing.simulation.loop import SimulatedLoop
from tests.simulation.history import Moment
from tests.simulation.run_context import RunContext, start_client
from tests.simulation.seed_run import SimulationResult, run_seed
from tests.simulation.shares.broker_watch import BrokerWatch
from tests.simulation.shares.checkers import check
from tests.simulation.shares.faults import ShareFaults
from tests.simulation.shares.history import FinalState, ShareHistory
from tests.simulation.shares.members import ShareActor
from tests.simulation.shares.scenario import GROUP, SharePlan, ShareScenario, draw

_PAUSE_SECONDS = 0.05
# One slow member may have to do all that is left.
_SLACK_SECONDS = 120.0
# Later, no request waits for a backoff or a timeout because of a fault.
_RECOVERY_SECONDS = 2.5
_LAST_RECORDS = 30
#: What was sent by a member that closed without time arrives meanwhile.
_LAST_REQUESTS_SECONDS = 0.1


def simulate_shares(seed: int, *, hostile: bool = False) -> SimulationResult:
    """Run a seed and check its history.

    Args:
        hostile: run ready tasks in random order.
    """
    scenario = draw(seed)
    history = ShareHistory(delivery_limit=scenario.delivery_limit, lock_s=scenario.lock_s)
    return run_seed(
        "shares",
        scenario,
        history,
        partial(_run, scenario=scenario, history=history),
        partial(check, history),
        hostile=hostile,
    )


async def _run(loop: SimulatedLoop, scenario: ShareScenario, history: ShareHistory) -> None:
    cluster = EmbeddedCluster(
        nodes=scenario.nodes, wall_clock=loop.wall_clock, random_source=loop.random("cluster")
    )
    async with cluster:
        for topic, count in scenario.partitions.items():
            cluster.create_topic(topic, count)
        async with Admin(cluster.bootstrap_servers) as admin:
            group = {
                "share.auto.offset.reset": "earliest",
                "share.isolation.level": f"read_{'' if scenario.committed_only else 'un'}committed",
                **{name: str(value) for name, value in scenario.group.items()},
            }
            await admin.incremental_alter_configs({ConfigResource.group(GROUP): group})
        await _ShareRun(RunContext(loop, cluster, history), scenario, history).run()


class _ShareRun:
    """One run: its members, its writer, its faults and its end."""

    def __init__(self, context: RunContext, scenario: ShareScenario, history: ShareHistory) -> None:
        self._context = context
        self._cluster = context.cluster
        self._scenario = scenario
        self._history = history
        self._watch = BrokerWatch(context.cluster, history)
        self._written = 0
        self._actors: dict[ShareActor, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Run it to its end."""
        scenario = self._scenario
        await self._write_transactions()
        for plan in scenario.members:
            self._add(plan)
        writing = self._context.start_on_host("writer", self._write(scenario.records, slowly=True))
        faults = ShareFaults(self._context, scenario)
        await asyncio.gather(faults.run(), asyncio.sleep(scenario.seconds), writing)
        repaired = self._history.note("no faults from now on", "fault")
        await asyncio.gather(
            *(task for actor, task in self._actors.items() if actor.plan.leaves_after is not None)
        )
        if not any(
            plan.leaves_after is None and {*plan.topics} == {*scenario.partitions}
            for plan in scenario.members
        ):
            self._add(scenario.late)
        await self._do_the_rest(repaired)
        for actor in self._actors:
            actor.end()
        await asyncio.gather(*self._actors.values())
        await asyncio.sleep(_LAST_REQUESTS_SECONDS)
        closed = {actor.plan.name for actor in self._actors if actor.plan.leaves_after is None}
        assert self._history.final is not None
        self._history.final.kept_back = sorted(closed & self._watch.lock_owners())

    def _add(self, plan: SharePlan) -> None:
        actor = ShareActor(self._context, self._history, plan)
        self._actors[actor] = self._context.start_on_host(plan.name, actor.run())

    async def _write(self, records: int, *, slowly: bool) -> None:
        """Write records, in batches of several."""
        scenario = self._scenario
        rng = self._context.loop.random(f"writer after {self._written} records")
        producer = self._producer()
        await start_client(producer)
        async with producer:
            for _ in range(records):
                await self._send(producer, rng)
                if slowly and rng.random() < 0.3:
                    await asyncio.sleep(rng.uniform(0, 6 * scenario.seconds / scenario.records))

    async def _write_transactions(self) -> None:
        """Write transactions, of which some are aborted; they leave offsets without a record."""
        rng = self._context.loop.random(f"transactions after {self._written} records")
        async with self._producer(transactional_id="writer") as producer:
            for _ in range(self._scenario.transactions):
                await producer.begin_transaction()
                for _ in range(rng.randint(1, 6)):
                    await self._send(producer, rng)
                if rng.random() < 0.3:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()

    def _producer(self, **settings: Any) -> Producer:
        return Producer(
            self._context.bootstrap_servers,
            client_id="writer",
            request_timeout_ms=1_000,
            max_block_ms=60_000,
            linger_ms=5,
            metadata_max_age_ms=200,
            **settings,
        )

    async def _send(self, producer: Producer, rng: random.Random) -> None:
        topic = rng.choice(list(self._scenario.partitions))
        partition = rng.randrange(self._scenario.partitions[topic])
        self._written += 1
        await producer.send(topic, b"%d" % self._written, partition=partition)

    async def _do_the_rest(self, repaired: Moment) -> None:
        """Everything must be done within a limit."""
        loop, history, scenario = self._context.loop, self._history, self._scenario
        # A record may be locked as often as it may be delivered.
        limit = _SLACK_SECONDS + 2 * scenario.lock_s * scenario.delivery_limit
        final = history.final = FinalState(repaired, limit)
        for actor in self._actors:
            actor.calm_down()
        await asyncio.sleep(_RECOVERY_SECONDS)
        await self._context.start_on_host("writer", self._write(_LAST_RECORDS, slowly=False))
        await self._write_transactions()
        final.cut = history.note("fault: all connections break", "fault")
        self._context.loop.network.cut()
        await asyncio.sleep(_RECOVERY_SECONDS)
        final.calm = history.note("the sessions have recovered", "fault")
        await self._context.start_on_host("writer", self._write(_LAST_RECORDS, slowly=False))
        history.logged = {
            (topic, number, record.offset)
            for topic, count in scenario.partitions.items()
            for number in range(count)
            for record in self._cluster.records(
                topic, number, committed_only=scenario.committed_only
            )
        }
        deadline = loop.time() + limit
        while (undone := self._watch.undone()) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_SECONDS)
        final.undone = undone
