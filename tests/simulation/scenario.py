"""The scenario of a seed: nodes, topic, producers and their settings, readers, and the number of
faults. Depends only on the seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.simulation.history import READ_COMMITTED, READ_UNCOMMITTED, Guarantee, summarize

TOPIC = "t"

# The kinds of producers, by frequency.
_KINDS = (["idempotent"] * 5) + (["transactional"] * 4) + ["all", "one", "none"]
_GUARANTEES = {
    "idempotent": Guarantee.EXACTLY_ONCE,
    "transactional": Guarantee.EXACTLY_ONCE,
    "all": Guarantee.AT_LEAST_ONCE,
    "one": Guarantee.UNLESS_LEADER_FAILS,
    "none": Guarantee.NOTHING,
}
_CODECS = ["none", "none", "none", "gzip", "snappy", "lz4", "zstd"]

_REPORTED_FIELDS = (
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

# Many small requests in flight, and batches that expire while others of their partition are being
# retried: hard cases for sequence numbers.
_SHORT_TIMEOUTS: dict[str, Any] = {
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
    """A producer and what it does.

    Attributes:
        settings: the settings of :class:`aioprod.Producer`.
        tasks: the number of tasks that send concurrently.
        crowd: the number of additional tasks that sometimes send concurrently, with few keys.
        records: the number of records of each task; in each transaction, if transactional.
        transactions: the number of transactions; 0 if not transactional.
        pause: the mean seconds between two sends of a task.
        burst: the mean number of sends without a pause.
        value_size: the maximum size of the values in bytes, without their number.
        cancel_share: the share of calls that are cancelled at a random time.
        close_timeout_ms: the argument of `close`.
        after: seconds until it starts.
        quits_after: seconds until it is closed, even if it is busy; None for at the end.
    """

    name: str
    settings: dict[str, Any]
    guarantee: Guarantee
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
        """The transactional id, if there is one."""
        transactional_id: str | None = self.settings.get("transactional_id")
        return transactional_id

    def __str__(self) -> str:
        fields = {name: getattr(self, name) for name in _REPORTED_FIELDS}
        return f"{self.name}: {summarize(fields)} settings: {summarize(self.settings)}"


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    """A reader of one partition, which reads while the producers run."""

    name: str
    partition: int
    isolation: str
    after: float
    settings: dict[str, Any]

    def __str__(self) -> str:
        return (
            f"{self.name}: partition {self.partition} {self.isolation} after={self.after} "
            f"{summarize(self.settings)}"
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that is decided before a run begins.

    Attributes:
        faults: the number of faults.
        loses_responses: whether responses to handled requests may get lost. If not, brokers may
            return wrong sequence errors; real brokers never return these for a batch that they
            have stored.
        fault_seconds: how long faults occur.
        brokers_are_far: whether producers treat all brokers as far away, and have more requests in
            flight.
    """

    seed: int
    nodes: int
    partitions: int
    transaction_version: int
    topic_configs: dict[str, str]
    producers: tuple[ProducerPlan, ...]
    readers: tuple[ReaderPlan, ...]
    faults: int
    loses_responses: bool
    fault_seconds: float
    brokers_are_far: bool

    def __str__(self) -> str:
        names = (
            "nodes",
            "partitions",
            "transaction_version",
            "topic_configs",
            "faults",
            "loses_responses",
            "fault_seconds",
            "brokers_are_far",
        )
        lines = [f"seed {self.seed}: {summarize({name: getattr(self, name) for name in names})}"]
        return "\n  ".join([*lines, *map(str, self.producers), *map(str, self.readers)])


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
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
        loses_responses=rng.random() < 0.7,
        fault_seconds=fault_seconds,
        brokers_are_far=random.Random(f"{seed} distance").random() < 0.3,
    )


def _draw_producers(rng: random.Random, fences: bool, seconds: float) -> tuple[ProducerPlan, ...]:
    plans: list[ProducerPlan] = []
    for number in range(1, rng.choice([1, 1, 2, 3]) + 1):
        kind = rng.choice(_KINDS)
        plan = _draw_producer(rng, f"p{number}", kind, fences, seconds)
        plans.append(plan)
        if kind == "transactional" and fences and rng.random() < 0.5:
            # Another instance takes over, perhaps while the first is still running.
            after = rng.uniform(0.1, seconds)
            plans.append(
                _draw_producer(
                    rng,
                    f"p{number}-successor",
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
    crowd = _draw_crowd(name, settings)
    guarantee = _GUARANTEES[kind]
    if guarantee is not Guarantee.EXACTLY_ONCE:
        settings["enable_idempotence"] = False
        settings["acks"] = {"all": "all", "one": 1, "none": 0}[kind]
        if rng.random() < 0.3:
            settings["retries"] = rng.choice([0, 1, 5])
    is_transactional = kind == "transactional"
    has_short_timeouts = guarantee is Guarantee.EXACTLY_ONCE and rng.random() < 0.4
    if has_short_timeouts:
        settings |= _SHORT_TIMEOUTS
        settings["delivery_timeout_ms"] = rng.choice([110, 150, 250])
    _draw_growth(name, settings)
    if is_transactional:
        settings["transactional_id"] = transactional_id or f"transactions-of-{name}"
        if fences and rng.random() < 0.2:
            settings["transaction_timeout_ms"] = rng.choice([500, 2_000])
    # Without idempotence, requests in flight and late copies may be stored in any order.
    ordered = guarantee is Guarantee.EXACTLY_ONCE or (
        guarantee is Guarantee.AT_LEAST_ONCE
        and settings["max_in_flight_requests_per_connection"] == 1
    )
    records = rng.choice([5, 10, 20]) if is_transactional else rng.choice([20, 50, 100])
    transactions = rng.choice([2, 5, 8]) if is_transactional else 0
    return ProducerPlan(
        name=name,
        settings=settings,
        guarantee=guarantee,
        ordered=ordered,
        tasks=rng.choice([1, 1, 2, 4]),
        crowd=crowd,
        records=records,
        transactions=transactions,
        # In most cases the producer sends for about as long as faults occur.
        pause=rng.choice([float(has_short_timeouts), rng.uniform(0.5, 1.0), rng.uniform(0.5, 1.0)])
        * seconds
        / (records * max(1, transactions)),
        burst=rng.choice([1, 1, 5] if has_short_timeouts else [1, 5, 20]),
        value_size=rng.choice([0, 20, 100, 400]),
        cancel_share=rng.choice([0.0, 0.0, 0.03, 0.1]),
        close_timeout_ms=rng.choice([None, None, None, 0, 5, 200]),
        after=after or rng.choice([0.0, 0.0, rng.uniform(0, seconds)]),
        quits_after=rng.uniform(0, seconds) if rng.random() < 0.15 else None,
        may_be_fatal=is_transactional and fences,
    )


def _draw_crowd(name: str, settings: dict[str, Any]) -> int:
    """Return the size of the crowd; sometimes reduce ``buffer_memory`` so that it has to wait."""
    # A separate generator, so that crowds do not change the rest of a seed's scenario.
    rng = random.Random(f"{name} {sorted(settings.items())} crowd")
    crowd = rng.choice([0, 0, 0, 8, 25])
    if crowd and rng.random() < 0.5:
        settings["buffer_memory"] = max(700, settings["batch_size"] + rng.choice([61, 700, 3_000]))
    return crowd


def _draw_growth(name: str, settings: dict[str, Any]) -> None:
    """Sometimes let batches grow while all requests are in flight."""
    # A separate generator, as for the crowd.
    rng = random.Random(f"{name} {sorted(settings.items())} growth")
    settings["largest_batch_size"] = settings["batch_size"] * rng.choice([1, 1, 1, 8])


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
