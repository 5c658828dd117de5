"""Runs a seed: the cluster, its clients, what goes wrong, a quiet end, and what the checkers say of
it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aioprod.errors import KafkaError
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster
from aioprod.testing.simulation.loop import SimulatedLoop
from aioprod.testing.simulation.trace import SimulationError
from aioprod.types import TopicPartition
from tests.simulation.checkers import Finding, check
from tests.simulation.faults import Nemesis
from tests.simulation.history import Content, History
from tests.simulation.reading import read_along, read_everything
from tests.simulation.scenario import TOPIC, Scenario, draw
from tests.simulation.workload import ProducerActor, group_of
from tests.simulation.world import World

_TIME_LIMIT_SECONDS = 3_600.0
_MOST_LINES = 60
_LATEST_SECONDS = 30.0


@dataclass(slots=True)
class Verdict:
    """What came of a seed.

    Attributes:
        virtual_seconds: how long the run took in its own time.
        digest: of everything that happened; the same whenever the seed is run again.
    """

    scenario: Scenario
    history: History
    findings: list[Finding]
    virtual_seconds: float
    digest: str
    hostile: bool = False

    @property
    def seed(self) -> int:
        """The seed."""
        return self.scenario.seed

    def full_trace(self) -> str:
        """All that the clients' side noted, line by line."""
        return "\n".join(
            [str(self.scenario), *map(str, self.history.lines), f"digest {self.digest}"]
        )

    def report(self) -> str:
        """The seed, its settings, what was found, and the lines of the history that show it."""
        lines = [str(self.scenario)]
        for finding in self.findings:
            lines.append(f"  {finding}")
        for finding in self.findings[:3]:
            lines.append(f"  -- the history of: {finding}")
            about = [f"  {line}" for line in self.history.about((*finding.subjects, "fault"))]
            if len(about) > _MOST_LINES:
                half = _MOST_LINES // 2
                about[half:-half] = [f"  ... {len(about) - 2 * half} lines ..."]
            lines += about
        hostile = " --hostile" if self.hostile else ""
        lines.append(f"  replay: python -m tests.simulation --seed {self.seed}{hostile} --trace")
        return "\n".join(lines)


def simulate(seed: int, *, hostile: bool = False) -> Verdict:
    """Run a seed and judge it. With ``hostile`` tasks that are ready take their steps in any
    order.
    """
    scenario = draw(seed)
    loop = SimulatedLoop(seed, hostile=hostile, time_limit_seconds=_TIME_LIMIT_SECONDS)
    history = History(clock=loop.time)
    begun = loop.time()
    broken = True
    with _listening(history):
        try:
            loop.run(_run(loop, scenario, history))
            broken = False
        except SimulationError as error:
            history.leftovers.append(f"the run can't go on: {error}")
        except Exception as error:
            # Of the library or of the workload: in both cases the seed is to be told.
            history.unexpected_log.append(
                "the run ended with an error: " + "".join(traceback.format_exception(error))
            )
    ended = loop.time()
    history.clock = lambda: ended
    verdict = Verdict(
        scenario,
        history,
        check(history),
        ended - begun,
        f"{history.digest()}-{loop.digest()}",
        hostile,
    )
    if broken:
        # It could not close its clients, which go with the loop: here, where that is no fault.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del loop
            gc.collect()
    return verdict


async def _run(loop: SimulatedLoop, scenario: Scenario, history: History) -> None:
    loop.set_exception_handler(lambda _, context: history.leftovers.append(_describe(context)))
    cluster = EmbeddedCluster(
        nodes=scenario.nodes,
        num_partitions=scenario.partitions,
        transaction_version=scenario.transaction_version,
        wall_clock=loop.wall_clock,
        random_source=loop.random("cluster"),
    )
    async with cluster:
        cluster.create_topic(TOPIC, scenario.partitions, scenario.topic_configs)
        await _act(World(loop, cluster, history), scenario)
    own = asyncio.current_task()
    await asyncio.sleep(1.0)
    for task in asyncio.all_tasks() - {own}:
        history.leftovers.append(f"task {task.get_name()} is left")
    gc.collect(0)  # futures with errors that nobody fetched complain when they go


async def _act(world: World, scenario: Scenario) -> None:
    history = world.history
    actors = [ProducerActor(world, plan, scenario.partitions) for plan in scenario.producers]
    readers = [world.start_on_host(plan.name, read_along(world, plan)) for plan in scenario.readers]
    nemesis = world.loop.create_task(Nemesis(world, scenario).run(), name="faults")
    await asyncio.gather(*(world.start_on_host(actor.plan.name, actor.run()) for actor in actors))
    await nemesis
    await asyncio.gather(*(world.start_on_host(actor.plan.name, actor.probe()) for actor in actors))
    await asyncio.gather(*(world.start_on_host(actor.plan.name, actor.close()) for actor in actors))
    for transactional_id in sorted(world.cluster.transactions):
        # What a lost producer has left open would keep readers from what is behind it.
        world.cluster.expire_transaction(transactional_id)
    await asyncio.sleep(1.0)
    for reader in readers:
        reader.cancel()
    if readers:
        await asyncio.wait(readers, timeout=10)
    await asyncio.sleep(_LATEST_SECONDS)
    try:
        await read_everything(world, scenario.partitions)
    except KafkaError as error:
        history.leftovers.append(f"the log can't be read: {error}")
    _look_into_broker(world, scenario)


def _look_into_broker(world: World, scenario: Scenario) -> None:
    history = world.history
    inits = Counter(
        request.client_id
        for request in world.cluster.requests
        if request.api_key == ApiKey.INIT_PRODUCER_ID
    )
    for producer in history.producers.values():
        # The first request for an identity has nothing by which a late copy could be known: it
        # fences the producer off from itself.
        producer.may_be_fatal = producer.may_be_fatal or inits[producer.name] > 1
    for number in range(scenario.partitions):
        found = world.cluster.records(TOPIC, number)
        places = [
            (record.offset, history.number_of(Content.of(record.key, record.value, record.headers)))
            for record in found
        ]
        history.stored[TopicPartition(TOPIC, number)] = places
    for transactional_id in world.cluster.transactions:
        position = world.cluster.committed_offsets(group_of(transactional_id)).get(
            TopicPartition(TOPIC, 0)
        )
        if position is not None:
            history.group_positions[transactional_id] = position


def _describe(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return (
        f"{context.get('message')}: {error!r}" if error is not None else str(context.get("message"))
    )


class _Listener(logging.Handler):
    """Notes what the log says of faults of the library itself: these come with a traceback."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.WARNING)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        is_fault = record.exc_info is not None or record.name.startswith("asyncio")
        if is_fault:
            error = record.exc_info[1] if record.exc_info else None
            self._history.unexpected_log.append(f"{record.name}: {record.getMessage()} {error!r}")
        self._history.note(f"log: {record.name}: {record.getMessage()}", "log")


@contextmanager
def _listening(history: History) -> Iterator[None]:
    """Take what is logged, and keep it from the screen."""
    listener = _Listener(history)
    loggers = [logging.getLogger("aioprod"), logging.getLogger("asyncio")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(listener)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(listener)
            logger.setLevel(level)
            logger.propagate = propagate
