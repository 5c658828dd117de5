"""Faults that hit all kinds of clients: nodes, leaders, the network and single requests. They begin
at random times, last for a while and end; at the end of the run all are repaired.

Each fault can occur in a real cluster. A real broker never rejects the sequence numbers of a batch
that it has stored, so a run has either lost responses or wrong sequence errors, not both.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import Action, delay, drop_after, drop_before, hold_answer, throttle
from aioprod.testing.simulation.network_faults import NetworkFault
from tests.simulation.run_context import RunContext

_MAX_FAULT_SECONDS = 2.0


class FaultPlan(NamedTuple):
    """The decisions of a scenario about its faults.

    Attributes:
        faults: the number of faults.
        seconds: how long faults begin.
        nodes: the number of nodes.
        loses_responses: whether responses to handled requests may get lost.
        partitions: the number of partitions of each topic.
        clients: the hosts of the clients.
    """

    faults: int
    seconds: float
    nodes: int
    loses_responses: bool
    partitions: Mapping[str, int]
    clients: Sequence[str]


class FaultInjector(ABC):
    """Injects the faults of a plan and repairs them."""

    def __init__(self, context: RunContext, plan: FaultPlan) -> None:
        self._context = context
        self._cluster = context.cluster
        self._network = context.loop.network
        self._plan = plan
        self._rng = context.loop.random("faults")
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: set[int] = set()
        self._busy: set[int] = set()
        self._moved: int | None = None

    @abstractmethod
    def _kinds(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the faults to choose from; some are listed several times to occur more often."""

    @abstractmethod
    def _any_api(self) -> ApiKey:
        """Return the API of requests to disturb."""

    async def run(self) -> None:
        """Inject all faults; return when they are repaired."""
        moments = sorted(self._rng.uniform(0, self._plan.seconds) for _ in range(self._plan.faults))
        begun = self._context.loop.time()
        for moment in moments:
            await asyncio.sleep(max(0.0, begun + moment - self._context.loop.time()))
            kind = self._rng.choice(self._kinds())
            task = self._context.loop.create_task(kind(), name=f"fault {kind.__name__.strip('_')}")
            self._tasks.add(task)
        for task in self._tasks:
            await task
        await self.repair()

    async def repair(self) -> None:
        """Repair everything."""
        self._cluster.clear_rules()
        self._cluster.resume_markers()
        for node in self._cluster.node_ids:
            if node in self._stopped:
                await self._cluster.start_node(node)
            self._cluster.unfreeze_node(node)
            self._cluster.resume_replication(node)
        self._stopped.clear()
        self._network.heal()
        self._note("everything is repaired")

    def _note(self, text: str) -> None:
        self._context.history.note(f"fault: {text}", "fault")

    def _duration(self) -> float:
        return self._rng.choice(
            [0.01, 0.1, 0.5, self._rng.uniform(0.05, 0.3), self._rng.uniform(0, _MAX_FAULT_SECONDS)]
        )

    # -- requests ----------------------------------------------------------------------------------

    async def _drop(self) -> None:
        self._add_rule(self._any_api(), drop_before(), "connection closed, not handled")

    async def _lose_responses(self) -> None:
        self._add_rule(
            self._any_api(), drop_after(), "handled, connection closed instead of a response"
        )

    async def _delay(self) -> None:
        seconds = self._duration()
        self._add_rule(self._any_api(), delay(seconds), f"handled {seconds:.3f} s late")

    async def _throttle(self) -> None:
        milliseconds = self._rng.choice([5, 50, 300])
        self._add_rule(self._any_api(), throttle(milliseconds), f"throttled for {milliseconds} ms")

    async def _keep_responses(self) -> None:
        released = asyncio.Event()
        seconds = self._duration()
        self._add_rule(self._any_api(), hold_answer(released), f"response {seconds:.3f} s late")
        await asyncio.sleep(seconds)
        released.set()

    def _add_rule(self, api: ApiKey, action: Action, text: str) -> None:
        times = self._rng.choice([1, 1, 2, 5])
        node = self._rng.choice([None, *self._cluster.node_ids])
        self._note(
            f"the next {times} {api.name} to "
            f"{'any node' if node is None else f'node {node}'}: {text}"
        )
        self._cluster.on(api, action, times=times, node=node)

    # -- nodes -------------------------------------------------------------------------------------

    async def _stop_node(self) -> None:
        await self._stop("stops", self._cluster.stop_node)

    async def _kill_node(self, node: int | None = None) -> None:
        self._context.history.leader_failed = True
        await self._stop("is killed", self._cluster.kill_node, node)

    async def _stop(
        self, how: str, stop: Callable[[int], Awaitable[None]], node: int | None = None
    ) -> None:
        node = self._take_node(node)
        if node is None:
            return
        self._note(f"node {node} {how}")
        self._stopped.add(node)
        await stop(node)
        await asyncio.sleep(self._duration())
        # Only one node of several may move, or clients would have no valid address left.
        new_port = self._plan.nodes > 1 and self._moved in (None, node) and self._rng.random() < 0.2
        self._moved = node if new_port else self._moved
        self._note(f"node {node} starts{' on another port' if new_port else ''}")
        await self._start(node, new_port=new_port)
        self._busy.discard(node)

    async def _freeze_node(self) -> None:
        node = self._take_node()
        if node is None:
            return
        self._note(f"node {node} freezes")
        self._cluster.freeze_node(node)
        await asyncio.sleep(self._duration())
        self._note(f"node {node} continues")
        self._cluster.unfreeze_node(node)
        self._busy.discard(node)

    async def _outage(self) -> None:
        if self._busy or self._rng.random() < 0.5:
            return
        self._busy.update(self._cluster.node_ids)
        self._note("all nodes stop")
        self._stopped.update(self._cluster.node_ids)
        self._context.history.leader_failed = True
        await self._cluster.stop_all()
        await asyncio.sleep(self._duration())
        for node in self._rng.sample(self._cluster.node_ids, len(self._cluster.node_ids)):
            self._note(f"node {node} starts")
            await self._start(node)
            self._busy.discard(node)
            await asyncio.sleep(self._duration() / 10)

    async def _start(self, node: int, *, new_port: bool = False) -> None:
        await self._cluster.start_node(node, new_port=new_port)
        self._stopped.discard(node)

    async def _pause_replication(self) -> None:
        # A new leader may lack records that only the old one has acknowledged.
        self._context.history.leader_failed = True
        node = self._rng.choice(self._cluster.node_ids)
        self._note(f"node {node} falls behind the leaders")
        self._cluster.pause_replication(node)
        await asyncio.sleep(self._duration())
        self._note(f"node {node} catches up")
        self._cluster.resume_replication(node)

    def _take_node(self, wanted: int | None = None) -> int | None:
        """Return a node that no other fault affects."""
        free = [
            node
            for node in self._cluster.node_ids
            if node not in self._busy and wanted in (None, node)
        ]
        if not free:
            return None
        node = self._rng.choice(free)
        self._busy.add(node)
        return node

    async def _elect_lagging_leader(self) -> None:
        """Make a node leader that lacks the latest records of the old leader."""
        node = self._rng.choice(self._cluster.node_ids)
        self._context.history.leader_failed = True
        self._note(f"nodes other than {node} fall behind")
        others = [other for other in self._cluster.node_ids if other != node]
        for other in others:
            self._cluster.pause_replication(other)
        await asyncio.sleep(self._rng.uniform(0, 0.1))
        if node in self._busy or self._rng.random() < 0.5:
            await self._move_leaders()
        else:
            await self._kill_node(node)
        for other in others:
            self._cluster.resume_replication(other)

    async def _move_leaders(self) -> None:
        for topic, count in self._plan.partitions.items():
            for partition in range(count):
                self._move_leader(topic, partition)

    def _move_leader(self, topic: str, partition: int) -> None:
        candidates = [
            node
            for node in self._cluster.in_sync_replicas(topic, partition)
            if node not in self._busy
        ]
        if candidates and self._rng.random() < 0.7:
            node = self._rng.choice(candidates)
            self._note(f"node {node} leads partition {partition} of {topic}")
            self._cluster.move_leader(topic, partition, node)

    # -- the network -------------------------------------------------------------------------------

    async def _cut(self) -> None:
        one, other = self._ends()
        self._note(f"connections between {one or 'any host'} and {other or 'any host'} break")
        self._network.cut(one, other)

    async def _cut_while_sending(self) -> None:
        sender, receiver = self._rng.sample(self._ends(), 2)
        times = self._rng.choice([1, 1, 3])
        delivered = self._rng.choice([None, None, 0.0, 1.0])
        self._note(
            f"the next {times} connections break as {sender or 'any host'} sends to "
            f"{receiver or 'any host'}"
        )
        fault = self._network.cut_while_sending(sender, receiver, times=times, delivered=delivered)
        await asyncio.sleep(self._duration())
        fault.heal()

    async def _partition(self) -> None:
        sender, receiver = self._rng.sample(self._ends(), 2)
        one_way = self._rng.random() < 0.5
        text = (
            f"nothing gets from {sender or 'any host'} to "
            f"{receiver or 'any host'}{'' if one_way else ', nor back'}"
        )
        await self._keep(text, self._network.partition(sender, receiver, one_way=one_way))

    async def _block_responses(self) -> None:
        """Deliver requests, but no responses."""
        client, node = self._ends()
        text = f"nothing gets from {node or 'any node'} to {client or 'any client'}"
        await self._keep(text, self._network.partition(node or self._nodes, client, one_way=True))

    async def _black_hole(self) -> None:
        place = self._rng.choice(self._ends())
        if self._rng.random() < 0.5:
            text = f"nothing gets to {place or 'any host'} or comes from it"
            await self._keep(text, self._network.black_hole(place))
        else:
            text = f"{place or 'every host'} is switched off"
            await self._keep(text, self._network.vanish(place))

    async def _refuse_connections(self) -> None:
        _, node = self._ends()
        await self._keep(
            f"connections to {node or 'any host'} are refused", self._network.refuse(node)
        )

    async def _slow(self) -> None:
        one, other = self._ends()
        speed = self._rng.choice([2_000, 20_000, 200_000])
        await self._keep(
            f"{speed} bytes per second between {one or 'any host'} and {other or 'any host'}",
            self._network.slow(speed, one, other),
        )

    async def _latency(self) -> None:
        one, other = self._ends()
        seconds = self._rng.choice([0.01, 0.05, 0.3])
        text = f"up to {seconds} s of latency between {one or 'any host'} and {other or 'any host'}"
        await self._keep(text, self._network.delay(0.0, seconds, one, other))

    def _ends(self) -> tuple[str | None, str | None]:
        """Return a random client and a random node; None means all."""
        return (
            self._rng.choice([None, *self._plan.clients]),
            self._rng.choice([None, *self._nodes]),
        )

    @property
    def _nodes(self) -> list[str]:
        return [self._cluster.address(node) for node in self._cluster.node_ids]

    async def _keep(self, text: str, fault: NetworkFault) -> None:
        self._note(text)
        await asyncio.sleep(self._duration())
        fault.heal()
        self._note(f"ended: {text}")

    async def _jump(self) -> None:
        seconds = self._rng.choice([0.05, 0.5, 5.0])
        self._note(f"the process is suspended for {seconds} s")
        self._context.history.suspensions.append((self._context.loop.time(), seconds))
        self._context.loop.jump(seconds)
