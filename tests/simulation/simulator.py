"""Run a seed of producers: a cluster, its clients, faults, a time without faults, and the checks
of the history.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from unittest.mock import patch

from aioprod.errors import KafkaError
from aioprod.net import distance
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster
from aioprod.testing.simulation.loop import SimulatedLoop
from aioprod.types import TopicPartition
from tests.simulation.checkers import check
from tests.simulation.history import Content, History
from tests.simulation.producer_faults import ProducerFaults
from tests.simulation.producers import ProducerActor, group_of
from tests.simulation.readers import read_along, read_everything
from tests.simulation.run_context import RunContext
from tests.simulation.scenario import TOPIC, Scenario, draw
from tests.simulation.seed_run import SimulationResult, run_seed

_FINISH_SECONDS = 30.0


def simulate(seed: int, *, hostile: bool = False) -> SimulationResult:
    """Run a seed and check its history.

    Args:
        hostile: run ready tasks in random order.
    """
    scenario = draw(seed)
    history = History()
    return run_seed(
        "producers",
        scenario,
        history,
        partial(_run, scenario=scenario, history=history),
        partial(check, history),
        hostile=hostile,
    )


async def _run(loop: SimulatedLoop, scenario: Scenario, history: History) -> None:
    cluster = EmbeddedCluster(
        nodes=scenario.nodes,
        num_partitions=scenario.partitions,
        transaction_version=scenario.transaction_version,
        wall_clock=loop.wall_clock,
        random_source=loop.random("cluster"),
    )
    far_s = 0.0 if scenario.brokers_are_far else distance.FAR_S
    async with cluster:
        cluster.create_topic(TOPIC, scenario.partitions, scenario.topic_configs)
        with patch.object(distance, "FAR_S", far_s):
            await _run_clients(RunContext(loop, cluster, history), scenario)


async def _run_clients(run: RunContext, scenario: Scenario) -> None:
    history = run.history
    actors = [ProducerActor(run, plan, scenario.partitions) for plan in scenario.producers]
    readers = [run.start_on_host(plan.name, read_along(run, plan)) for plan in scenario.readers]
    injector = run.loop.create_task(ProducerFaults(run, scenario).run(), name="faults")
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
    for plan, reader in zip(scenario.readers, readers, strict=True):
        if reader.done() and not reader.cancelled() and (error := reader.exception()):
            history.leftovers.append(f"reader {plan.name} failed: {error!r}")  # and found nothing
    await asyncio.sleep(_FINISH_SECONDS)
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
