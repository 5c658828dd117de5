"""A group of processors in virtual time: members join, leave and vanish, handlers fail, brokers
stop and freeze. The seed decides all.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aioprod import (
    BrokerConnectionError,
    ErrorCode,
    KafkaTimeoutError,
    Producer,
    ProducerRecord,
)
from aioprod.processing import DeadLettered, Processor, ProcessorObserver, Record, RetryPolicy
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import (
    EmbeddedCluster,
    GroupSettings,
    delay,
    drop_after,
    drop_before,
    fail,
    throttle,
)
from aioprod.testing.simulation import SimulatedLoop
from tests.processing import oracle
from tests.processing.oracle import History
from tests.waiting import until

TOPIC, OUTPUT, LETTERS = "orders", "shipments", "orders.dead"
GROUP = "shipping"
PARTITIONS = 3
RECORDS = 150
KEYS = 12
LIMIT_S = 400.0
# A start fails if no bootstrap server, or no coordinator, answers.
START_FAILURES = (BrokerConnectionError, KafkaTimeoutError)
_APIS = [
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.HEARTBEAT,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
]


CLASSIC, CONSUMER = "classic", "consumer"  # group.protocol
_OF_CLASSIC_GROUPS = (ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)


@dataclass
class Plan:
    """The parameters of a run, drawn from the seed."""

    rng: random.Random
    guarantee: str
    settings: dict[str, Any]
    failures: float
    slow_s: float
    apis: list[ApiKey]


def draw(seed: int, guarantee: str, protocol: str) -> Plan:
    """Draw the settings of the members and their troubles."""
    rng = random.Random(f"{guarantee}-{seed}")
    consumer: dict[str, Any] = {
        "fetch_max_wait_ms": 100,
        # Eager and cooperative.
        "partition_assignment_strategy": (rng.choice(["range", "cooperative-sticky"]),),
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 500,
    }
    apis = _APIS
    if protocol == CONSUMER:  # KIP-848
        assignor = rng.choice(["uniform", "range"])
        consumer = {
            "fetch_max_wait_ms": 100,
            "group_protocol": CONSUMER,
            "group_remote_assignor": assignor,
        }
        apis = [
            ApiKey.CONSUMER_GROUP_HEARTBEAT if api in _OF_CLASSIC_GROUPS else api for api in _APIS
        ]
    settings: dict[str, Any] = {
        "guarantee": guarantee,
        "concurrency": rng.choice([1, 3, 20]),
        "max_pending_records": rng.choice([2, 10, 1_000]),
        "commit_interval_ms": rng.choice([20, 200, 1_000]),
        "drain_timeout_ms": rng.choice([0, 300, 5_000]),
        "request_timeout_ms": 3_000,
        "consumer": consumer,
        "producer": {"linger_ms": 0, "delivery_timeout_ms": 60_000},
    }
    if guarantee != "at_most_once":
        settings["retry"] = RetryPolicy(attempts=3, backoff_ms=rng.choice([0, 50]))
        settings["dead_letter_topic"] = LETTERS
    return Plan(rng, guarantee, settings, rng.choice([0.0, 0.1]), rng.choice([0.01, 0.2]), apis)


class Letters(ProcessorObserver):
    """Notes when records are in the dead-letter topic."""

    def __init__(self, member: str, history: History) -> None:
        self._member = member
        self._history = history

    def on_dead_letter(self, event: DeadLettered) -> None:
        place = (event.record.partition, event.record.offset)
        self._history.note(self._member, "dead letter", place, event.record.key)


@dataclass
class Run:
    """One run: the members, and what was seen of them."""

    plan: Plan
    cluster: EmbeddedCluster
    loop: SimulatedLoop
    history: History = field(default_factory=History)
    keys: dict[tuple[int, bytes], list[int]] = field(default_factory=lambda: defaultdict(list))
    values: list[bytes] = field(default_factory=list)
    starts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    members: dict[str, tuple[asyncio.Task[None], Processor[Any, Any]]] = field(default_factory=dict)
    made: int = 0

    async def write(self) -> None:
        """Write the records, slowly."""
        rng = self.plan.rng
        async with Producer(self.cluster.bootstrap_servers, linger_ms=0) as producer:
            for number in range(RECORDS):
                key = b"%d" % rng.randrange(KEYS)
                value = b"%s:%d" % (key, number)
                self.values.append(value)
                place = await producer.send_and_wait(TOPIC, value, key=key)
                self.keys[place.partition, key].append(place.offset)
                self.starts[place.partition].append(place.offset)
                if rng.random() < 0.2:
                    await asyncio.sleep(rng.uniform(0, 0.5))

    def add_member(self) -> None:
        """Start a member on a host of its own."""
        self.made += 1
        name = f"member-{self.made}"
        settings = dict(self.plan.settings)
        if self.plan.rng.random() < 0.3:
            settings["consumer"] = {**settings["consumer"], "group_instance_id": name}

        async def handle(record: Record[Any, Any]) -> ProducerRecord | None:
            return await self._handle(name, record)

        with self.loop.network.host(name):
            processor = Processor(
                handle,
                TOPIC,
                bootstrap_servers=self.cluster.bootstrap_servers,
                group_id=GROUP,
                observers=[Letters(name, self.history)],
                **settings,
            )
            task = asyncio.create_task(processor.run(handle_signals=False), name=name)
        self.members[name] = (task, processor)

    async def _handle(self, name: str, record: Record[Any, Any]) -> ProducerRecord | None:
        place = (record.partition, record.offset)
        history, rng = self.history, self.plan.rng
        history.note(name, "begin", place, record.key)
        step = "failed"
        try:
            await asyncio.sleep(rng.expovariate(1 / self.plan.slow_s))
            if rng.random() < self.plan.failures:
                raise ValueError("out of stock")
            step = "done"
        finally:
            history.note(name, step, place, record.key)
        if self.plan.guarantee == "at_most_once":
            return None
        return ProducerRecord(OUTPUT, record.value, record.key, partition=record.partition)

    async def stop_member(self, *, vanish: bool) -> None:
        """Let a member leave, or end without a word."""
        name = self.plan.rng.choice(sorted(self.members))
        task, _ = self.members.pop(name)
        if vanish:
            self.loop.network.vanish(name)
            task.cancel()
            await asyncio.sleep(self.plan.rng.uniform(0, 0.2))
        task.cancel()
        await asyncio.wait([task])

    async def watch(self) -> None:
        """Look at the committed positions all the time."""
        before: Any = None
        while True:
            await asyncio.sleep(0.02)
            if self.plan.guarantee != "at_most_once":
                for letter in self.dead_letters():
                    self.history.done.add(letter)
                committed = self.cluster.committed_offsets(GROUP)
                self.history.committed(committed, self.starts)
                if committed != before:
                    before = committed
                    self.history.findings += oracle.missing_outputs(
                        committed, self.inputs(), self.outputs(), self.dead_letters()
                    )
            for name, (task, processor) in list(self.members.items()):
                if task.done() and isinstance(task.exception(), START_FAILURES):
                    del self.members[name]  # its supervisor starts it again
                    self.add_member()
                elif task.done():
                    self.history.findings.append(f"{name} has ended: {task!r}")
                    return
                self.look_at(name, processor)

    def look_at(self, name: str, processor: Processor[Any, Any]) -> None:
        """Check the bounds of a member."""
        measured = processor.metrics()
        settings = self.plan.settings
        if measured["records-in-flight"] > settings["concurrency"]:
            self.history.findings.append(f"{name}: more handlers than concurrency")
        most = settings["max_pending_records"] * PARTITIONS
        if measured["records-in-flight"] + measured["records-queued"] > most:
            self.history.findings.append(f"{name}: more records than max_pending_records")
        runner = processor._runner
        for items in processor._workers._tasks.values():
            for item in items:
                if runner.partitions.get(item.partition.tp) is not item.partition:
                    self.history.findings.append(f"{name}: handles a record it has given up")

    def dead_letters(self) -> list[tuple[int, int]]:
        """The places of the records in the dead-letter topic."""
        found = []
        for letter in self.cluster.records(LETTERS, committed_only=True):
            headers = dict(letter.headers)
            partition = headers["aioprod.original-partition"]
            offset = headers["aioprod.original-offset"]
            assert partition is not None and offset is not None
            found.append((int(partition), int(offset)))
        return found

    def inputs(self) -> dict[tuple[int, int], bytes]:
        """The values of the records by their places."""
        return {
            (partition, record.offset): record.value or b""
            for partition in range(PARTITIONS)
            for record in self.cluster.records(TOPIC, partition)
        }

    def outputs(self) -> set[bytes]:
        """The values of the stored outputs."""
        stored = self.cluster.records(OUTPUT, committed_only=True)
        return {record.value or b"" for record in stored}

    def cluster_value(self, place: tuple[int, int]) -> bytes:
        """The value of a record by its place."""
        records = self.cluster.records(TOPIC, place[0])
        return next(r.value or b"" for r in records if r.offset == place[1])

    async def disturb(self) -> None:
        """One trouble after the other; in the end all is well, and there is a member."""
        rng, cluster, network = self.plan.rng, self.cluster, self.loop.network
        for _ in range(12):
            await asyncio.sleep(rng.uniform(0.1, 3))
            match rng.randrange(8):
                case 0 | 1 if len(self.members) < 4:
                    self.add_member()
                case 2 if len(self.members) > 1:
                    await self.stop_member(vanish=False)
                case 3 if len(self.members) > 1:
                    await self.stop_member(vanish=True)
                case 4:
                    node = rng.choice(list(cluster.node_ids))
                    await cluster.stop_node(node)
                    await asyncio.sleep(rng.uniform(0.1, 3))
                    await cluster.start_node(node)
                case 5:
                    action = rng.choice(
                        [drop_before(), drop_after(), delay(rng.uniform(0, 2)), throttle(500)]
                    )
                    cluster.on(rng.choice(self.plan.apis), action, times=rng.randrange(1, 4))
                case 6 if self.members:
                    # Long enough for the session to end: its handlers run on, others take over.
                    fault = network.vanish(rng.choice(sorted(self.members)))
                    await asyncio.sleep(rng.choice([1, 9]))
                    fault.heal()
                case _:
                    node = rng.choice(list(cluster.node_ids))
                    cluster.freeze_node(node)
                    await asyncio.sleep(rng.uniform(0.1, 5))
                    cluster.unfreeze_node(node)
        cluster.clear_rules()
        if not self.members:
            self.add_member()

    async def refuse_outputs(self) -> None:
        """Let the broker refuse some outputs, after later ones of their keys were sent."""
        rng = random.Random(self.plan.rng.getrandbits(32))
        topic_id = self.cluster.topics[OUTPUT].topic_id

        def is_for_outputs(request: Any) -> bool:
            return all(topic.topic_id == topic_id for topic in request.topic_data)

        while True:
            await asyncio.sleep(rng.uniform(0.5, 4))
            self.cluster.on(
                ApiKey.PRODUCE,
                delay(rng.choice([0, 0.3])),
                fail(ErrorCode.INVALID_RECORD),
                where=is_for_outputs,
            )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a state within the limit of the run."""
        await until(condition, LIMIT_S)

    def is_committed(self) -> bool:
        """Return whether all positions are committed up to the end."""
        committed = {tp.partition: at for tp, at in self.cluster.committed_offsets(GROUP).items()}
        return all(committed.get(p, 0) > offsets[-1] for p, offsets in self.starts.items())


@asynccontextmanager
async def running(seed: int, guarantee: str, protocol: str) -> AsyncIterator[Run]:
    """A run through its troubles, until everything is committed and all members have left."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    groups = GroupSettings(consumer_session_timeout_ms=6_000, consumer_heartbeat_interval_ms=500)
    async with EmbeddedCluster(nodes=3, groups=groups) as cluster:
        for topic in (TOPIC, OUTPUT, LETTERS):
            cluster.create_topic(topic, PARTITIONS, replication_factor=3)
        run = Run(draw(seed, guarantee, protocol), cluster, loop)
        run.add_member()
        watch = asyncio.create_task(run.watch())
        refusals = asyncio.create_task(run.refuse_outputs())
        if guarantee != "at_least_once":
            refusals.cancel()  # transactions are aborted
        try:
            await asyncio.gather(run.write(), run.disturb())
            refusals.cancel()
            await run.until(lambda: run.is_committed() or bool(run.history.findings))
            yield run
        finally:
            watch.cancel()
            refusals.cancel()
            for task, _ in run.members.values():
                task.cancel()
            await asyncio.wait([watch, refusals, *(task for task, _ in run.members.values())])
