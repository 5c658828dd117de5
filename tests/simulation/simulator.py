"""Run a seed: a cluster, its clients, faults, a time without faults, and the checks of the
history.
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
from tests.simulation.fault_injector import FaultInjector
from tests.simulation.history import Content, History
from tests.simulation.producers import ProducerActor, group_of
from tests.simulation.readers import read_along, read_everything
from tests.simulation.run_context import RunContext
from tests.simulation.scenario import TOPIC, Scenario, draw

_TIME_LIMIT_SECONDS = 3_600.0
_MAX_LINES = 60
_SETTLE_SECONDS = 30.0


@dataclass(slots=True)
class SimulationResult:
    """The result of a seed.

    Attributes:
        virtual_seconds: the virtual time that the run took.
        digest: the digest of all events: equal whenever the seed is run again.
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
        """Return the whole history as text."""
        return "\n".join(
            [str(self.scenario), *map(str, self.history.lines), f"digest {self.digest}"]
        )

    def report(self) -> str:
        """Return the seed, its settings, the findings, and the lines of the history that show
        them.
        """
        lines = [str(self.scenario)]
        for finding in self.findings:
            lines.append(f"  {finding}")
        for finding in self.findings[:3]:
            lines.append(f"  -- history of: {finding}")
            about = [f"  {line}" for line in self.history.about((*finding.subjects, "fault"))]
            if len(about) > _MAX_LINES:
                half = _MAX_LINES // 2
                about[half:-half] = [f"  ... {len(about) - 2 * half} lines ..."]
            lines += about
        hostile = " --hostile" if self.hostile else ""
        lines.append(f"  replay: python -m tests.simulation --seed {self.seed}{hostile} --trace")
        return "\n".join(lines)


def simulate(seed: int, *, hostile: bool = False) -> SimulationResult:
    """Run a seed and check its history.

    Args:
        hostile: run ready tasks in random order.
    """
    scenario = draw(seed)
    loop = SimulatedLoop(seed, hostile=hostile, time_limit_seconds=_TIME_LIMIT_SECONDS)
    history = History(clock=loop.time)
    begun = loop.time()
    failed = True
    with _captured_logs(history):
        try:
            loop.run(_run(loop, scenario, history))
            failed = False
        except SimulationError as error:
            history.leftovers.append(f"the run can't continue: {error}")
        except Exception as error:
            # Report it with the seed, whether the library or the test raised it.
            history.unexpected_log.append(
                "the run failed: " + "".join(traceback.format_exception(error))
            )
    ended = loop.time()
    history.clock = lambda: ended
    result = SimulationResult(
        scenario,
        history,
        check(history),
        ended - begun,
        f"{history.digest()}-{loop.digest()}",
        hostile,
    )
    if failed:
        # Its clients were not closed: collect them here, without their warnings.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del loop
            gc.collect()
    return result


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
        await _run_clients(RunContext(loop, cluster, history), scenario)
    this_task = asyncio.current_task()
    await asyncio.sleep(1.0)
    for task in asyncio.all_tasks() - {this_task}:
        history.leftovers.append(f"task {task.get_name()} is still running")
    gc.collect(0)  # reports errors of futures that were never retrieved


async def _run_clients(run: RunContext, scenario: Scenario) -> None:
    history = run.history
    actors = [ProducerActor(run, plan, scenario.partitions) for plan in scenario.producers]
    readers = [run.start_on_host(plan.name, read_along(run, plan)) for plan in scenario.readers]
    injector = run.loop.create_task(FaultInjector(run, scenario).run(), name="faults")
    await asyncio.gather(*(run.start_on_host(actor.plan.name, actor.run()) for actor in actors))
    await injector
    await asyncio.gather(*(run.start_on_host(actor.plan.name, actor.probe()) for actor in actors))
    await asyncio.gather(*(run.start_on_host(actor.plan.name, actor.close()) for actor in actors))
    for transactional_id in sorted(run.cluster.transactions):
        # Open transactions of failed producers would block readers of committed records.
        run.cluster.expire_transaction(transactional_id)
    await asyncio.sleep(1.0)
    for reader in readers:
        reader.cancel()
    if readers:
        await asyncio.wait(readers, timeout=10)
    await asyncio.sleep(_SETTLE_SECONDS)
    try:
        await read_everything(run, scenario.partitions)
    except KafkaError as error:
        history.leftovers.append(f"the log can't be read: {error}")
    _read_broker_state(run, scenario)


def _read_broker_state(run: RunContext, scenario: Scenario) -> None:
    history = run.history
    inits = Counter(
        request.client_id
        for request in run.cluster.requests
        if request.api_key == ApiKey.INIT_PRODUCER_ID
    )
    for producer in history.producers.values():
        # A late copy of the first InitProducerId can't be recognized and fences the producer that
        # sent it.
        producer.may_be_fatal = producer.may_be_fatal or inits[producer.name] > 1
    for number in range(scenario.partitions):
        stored = run.cluster.records(TOPIC, number)
        numbers = [
            (record.offset, history.number_of(Content.of(record.key, record.value, record.headers)))
            for record in stored
        ]
        history.stored[TopicPartition(TOPIC, number)] = numbers
    for transactional_id in run.cluster.transactions:
        position = run.cluster.committed_offsets(group_of(transactional_id)).get(
            TopicPartition(TOPIC, 0)
        )
        if position is not None:
            history.group_offsets[transactional_id] = position


def _describe(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return (
        f"{context.get('message')}: {error!r}" if error is not None else str(context.get("message"))
    )


class _LogCapture(logging.Handler):
    """Records log lines; those with a traceback, and asyncio's, report bugs of the library."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.WARNING)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        is_bug = record.exc_info is not None or record.name.startswith("asyncio")
        if is_bug:
            error = record.exc_info[1] if record.exc_info else None
            self._history.unexpected_log.append(f"{record.name}: {record.getMessage()} {error!r}")
        self._history.note(f"log: {record.name}: {record.getMessage()}", "log")


@contextmanager
def _captured_logs(history: History) -> Iterator[None]:
    """Record what is logged instead of printing it."""
    handler = _LogCapture(history)
    loggers = [logging.getLogger("aioprod"), logging.getLogger("asyncio")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
