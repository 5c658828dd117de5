"""What a seed stands for: how many nodes, which producers with which settings, which readers, and
how much goes wrong. Drawn from the seed alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.simulation.history import READ_COMMITTED, READ_UNCOMMITTED, Promise, summarise

TOPIC = "t"

# How often each kind of producer is drawn.
_KINDS = (["idempotent"] * 5) + (["transactional"] * 4) + ["all", "one", "none"]
_CODECS = ["none", "none", "none", "gzip", "snappy", "lz4", "zstd"]


_OWN_FIELDS = (
    "tasks",
    "crowd",
    "records",
    "transactions",
    "pause",
    "burst",
    "value_size",
    "cancel_share",
    "close_timeout_ms",
    "after",
    "quits_after",
)

# Many small requests in flight, and batches given up while others of their partition are still
# tried: where sequences are hard to keep.
_PRESSED: dict[str, Any] = {
    "batch_size": 120,
    "linger_ms": 0,
    "request_timeout_ms": 80,
    "max_in_flight_requests_per_connection": 5,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 10,
}


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """One producer and what it does.

    Attributes:
        settings: of :class:`aioprod.Producer`.
        tasks: how many tasks send at the same time.
        crowd: now and then so many more tasks send at the same time, with few keys; 0 for never.
        records: how many each of them sends; of a transactional producer, per transaction.
        transactions: how many there are; 0 where it is not transactional.
        pause: mean seconds between two sends of a task.
        burst: so many sends follow each other at once.
        value_size: up to how many bytes the values have beside their number.
        cancel_share: the share of calls that are cancelled at a random moment.
        close_timeout_ms: given to `close`; None for none.
        after: seconds into the run at which it starts.
        quits_after: seconds into the run at which it is closed, whatever it is doing; None for at
            the end.
    """

    name: str
    settings: dict[str, Any]
    promise: Promise
    ordered: bool
    tasks: int
    crowd: int
    records: int
    transactions: int
    pause: float
    burst: int
    value_size: int
    cancel_share: float
    close_timeout_ms: float | None
    after: float
    quits_after: float | None
    may_be_fatal: bool = False

    @property
    def transactional_id(self) -> str | None:
        """The producer's, if it is transactional."""
        found: str | None = self.settings.get("transactional_id")
        return found

    def __str__(self) -> str:
        own = {name: getattr(self, name) for name in _OWN_FIELDS}
        return f"{self.name}: {summarise(own)} settings: {summarise(self.settings)}"


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    """One reader of one partition, beside the producers."""

    name: str
    partition: int
    isolation: str
    after: float
    settings: dict[str, Any]

    def __str__(self) -> str:
        return (
            f"{self.name}: partition {self.partition} {self.isolation} after={self.after} "
            f"{summarise(self.settings)}"
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that is decided before a run begins.

    Attributes:
        faults: how many faults strike.
        loses_answers: whether what is applied may stay unanswered. Where it is not, brokers may
            also lie about sequences: they never say of a batch that they have stored that its
            sequence is wrong.
        fault_seconds: how long faults go on.
    """

    seed: int
    nodes: int
    partitions: int
    transaction_version: int
    topic_configs: dict[str, str]
    producers: tuple[ProducerPlan, ...]
    readers: tuple[ReaderPlan, ...]
    faults: int
    loses_answers: bool
    fault_seconds: float

    def __str__(self) -> str:
        names = (
            "nodes",
            "partitions",
            "transaction_version",
            "topic_configs",
            "faults",
            "loses_answers",
            "fault_seconds",
        )
        lines = [f"seed {self.seed}: {summarise({name: getattr(self, name) for name in names})}"]
        return "\n  ".join([*lines, *map(str, self.producers), *map(str, self.readers)])


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(f"{seed} scenario")
    nodes = rng.choice([1, 3, 3, 3])
    partitions = rng.choice([1, 2, 3, 4])
    topic_configs: dict[str, str] = {}
    if nodes == 3 and rng.random() < 0.5:
        topic_configs["min.insync.replicas"] = "2"
    if rng.random() < 0.35:
        topic_configs["max.message.bytes"] = str(rng.choice([700, 1500]))
    if rng.random() < 0.1:
        topic_configs["message.timestamp.type"] = "LogAppendTime"
    transaction_version = rng.choice([2, 2, 2, 1, 0])
    fences = rng.random() < 0.3
    fault_seconds = rng.choice([0.5, 1.5, 3.0])
    producers = _draw_producers(rng, fences, fault_seconds)
    readers = tuple(
        _draw_reader(rng, number, partitions) for number in range(rng.choice([0, 1, 1, 2]))
    )
    return Scenario(
        seed=seed,
        nodes=nodes,
        partitions=partitions,
        transaction_version=transaction_version,
        topic_configs=topic_configs,
        producers=producers,
        readers=readers,
        faults=rng.choice([0, 3, 8, 15, 25]),
        loses_answers=rng.random() < 0.7,
        fault_seconds=fault_seconds,
    )


def _draw_producers(rng: random.Random, fences: bool, seconds: float) -> tuple[ProducerPlan, ...]:
    plans: list[ProducerPlan] = []
    for number in range(1, rng.choice([1, 1, 2, 3]) + 1):
        kind = rng.choice(_KINDS)
        plan = _draw_producer(rng, f"p{number}", kind, fences, seconds)
        plans.append(plan)
        if kind == "transactional" and fences and rng.random() < 0.5:
            # Another instance takes over while the first may still be at work.
            after = rng.uniform(0.1, seconds)
            plans.append(
                _draw_producer(
                    rng,
                    f"p{number}-heir",
                    kind,
                    fences,
                    seconds,
                    after=after,
                    transactional_id=plan.transactional_id,
                )
            )
    return tuple(plans)


def _draw_producer(
    rng: random.Random,
    name: str,
    kind: str,
    fences: bool,
    seconds: float,
    *,
    after: float = 0.0,
    transactional_id: str | None = None,
) -> ProducerPlan:
    settings = _draw_settings(rng)
    # From a source of its own, so that what else a seed stands for is as it was before there were
    # crowds.
    crowds = random.Random(f"{name} {sorted(settings.items())} crowd")
    crowd = crowds.choice([0, 0, 0, 8, 25])
    if crowd and crowds.random() < 0.5:
        settings["buffer_memory"] = max(
            700, settings["batch_size"] + crowds.choice([61, 700, 3_000])
        )
    promise = {
        "idempotent": Promise.EXACTLY_ONCE,
        "transactional": Promise.EXACTLY_ONCE,
        "all": Promise.AT_LEAST_ONCE,
        "one": Promise.UNLESS_LEADER_DIES,
        "none": Promise.NOTHING,
    }[kind]
    if promise is not Promise.EXACTLY_ONCE:
        settings["enable_idempotence"] = False
        settings["acks"] = {"all": "all", "one": 1, "none": 0}[kind]
        if rng.random() < 0.3:
            settings["retries"] = rng.choice([0, 1, 5])
    is_transactional = kind == "transactional"
    is_pressed = promise is Promise.EXACTLY_ONCE and rng.random() < 0.4
    if is_pressed:
        settings |= _PRESSED
        settings["delivery_timeout_ms"] = rng.choice([110, 150, 250])
    if is_transactional:
        settings["transactional_id"] = transactional_id or f"transactions-of-{name}"
        if fences and rng.random() < 0.2:
            settings["transaction_timeout_ms"] = rng.choice([500, 2_000])
    # Without idempotence several requests in flight may be stored in any order, and a late copy may
    # overtake.
    ordered = promise is Promise.EXACTLY_ONCE or (
        promise is Promise.AT_LEAST_ONCE and settings["max_in_flight_requests_per_connection"] == 1
    )
    records = rng.choice([5, 10, 20]) if is_transactional else rng.choice([20, 50, 100])
    transactions = rng.choice([2, 5, 8]) if is_transactional else 0
    return ProducerPlan(
        name=name,
        settings=settings,
        promise=promise,
        ordered=ordered,
        tasks=rng.choice([1, 1, 2, 4]),
        crowd=crowd,
        records=records,
        transactions=transactions,
        # Mostly so that they send for about as long as things go wrong.
        pause=rng.choice([float(is_pressed), rng.uniform(0.5, 1.0), rng.uniform(0.5, 1.0)])
        * seconds
        / (records * max(1, transactions)),
        burst=rng.choice([1, 1, 5] if is_pressed else [1, 5, 20]),
        value_size=rng.choice([0, 20, 100, 400]),
        cancel_share=rng.choice([0.0, 0.0, 0.03, 0.1]),
        close_timeout_ms=rng.choice([None, None, None, 0, 5, 200]),
        after=after or rng.choice([0.0, 0.0, rng.uniform(0, seconds)]),
        quits_after=rng.uniform(0, seconds) if rng.random() < 0.15 else None,
        may_be_fatal=is_transactional and fences,
    )


def _draw_settings(rng: random.Random) -> dict[str, Any]:
    batch_size = rng.choice([120, 300, 1_000, 16_384])
    linger_ms = rng.choice([0, 0, 1, 5, 20])
    request_timeout_ms = rng.choice([80, 80, 200, 1_000])
    settings: dict[str, Any] = {
        "batch_size": batch_size,
        "linger_ms": linger_ms,
        "buffer_memory": max(batch_size + 61, rng.choice([700, 3_000, 20_000, 33_554_432])),
        "compression_type": rng.choice(_CODECS),
        "request_timeout_ms": request_timeout_ms,
        "delivery_timeout_ms": max(
            linger_ms + request_timeout_ms, rng.choice([100, 300, 1_000, 5_000, 30_000])
        ),
        "max_block_ms": rng.choice([100, 300, 2_000, 10_000]),
        "max_in_flight_requests_per_connection": rng.choice([1, 2, 5, 5]),
        "retry_backoff_ms": rng.choice([1, 10, 50]),
        "retry_backoff_max_ms": rng.choice([50, 200]),
        "reconnect_backoff_ms": rng.choice([1, 10]),
        "reconnect_backoff_max_ms": rng.choice([10, 200]),
        "socket_connection_setup_timeout_ms": rng.choice([50, 500]),
        "socket_connection_setup_timeout_max_ms": 1_000,
        "metadata_max_age_ms": rng.choice([100, 1_000, 300_000]),
    }
    if rng.random() < 0.2:
        settings["connections_max_idle_ms"] = rng.choice([20, 200])
    if rng.random() < 0.2:
        settings["partitioner_availability_timeout_ms"] = rng.choice([5, 100])
    if rng.random() < 0.1:
        settings["max_request_size"] = rng.choice([400, 2_000])
    return settings


def _draw_reader(rng: random.Random, number: int, partitions: int) -> ReaderPlan:
    return ReaderPlan(
        name=f"r{number + 1}",
        partition=rng.randrange(partitions),
        isolation=rng.choice([READ_COMMITTED, READ_UNCOMMITTED]),
        after=rng.choice([0.0, rng.uniform(0, 2)]),
        settings={
            "fetch_max_wait_ms": rng.choice([50, 500]),
            "fetch_min_bytes": rng.choice([1, 1, 1_000]),
            "max_partition_fetch_bytes": rng.choice([500, 1_048_576]),
        },
    )
