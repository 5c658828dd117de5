"""Collaborators of a producer, put together without a broker."""

from __future__ import annotations

import random
from typing import NamedTuple

from aioprod.cluster.runtime import ClientKind, ClientRuntime
from aioprod.config.producer import ProducerConfig
from aioprod.errors import ProducerClosedError
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.admission import Admission
from aioprod.producer.appender import Appender
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.compressor import Compressor
from aioprod.producer.partition_choice import PartitionChoice
from aioprod.producer.sequences import ProducerState
from aioprod.producer.transactions.gate import NoTransactions
from aioprod.producer.wakeup import SenderWakeup


class NoEvents:
    """Ignores the ends of batches."""

    wants_records = False

    def ended(self, batch: ProducerBatch) -> None:
        """Do nothing."""

    def dropped(self, batch: ProducerBatch) -> None:
        """Do nothing."""


class Waits(list[float]):
    """The seconds of each wait for memory."""

    def buffer_waited(self, seconds: float, now: float) -> None:
        """Add a wait."""
        self.append(seconds)

    def buffer_exhausted(self, now: float) -> None:
        """Do nothing."""


def make_pool(total: int, block_size: int) -> BufferPool:
    return BufferPool(total, block_size, Waits())


def make_accumulator(config: ProducerConfig, seed: int = 0) -> RecordAccumulator:
    return RecordAccumulator(
        config,
        make_pool(config.buffer_memory, config.batch_size),
        ProducerState("p"),
        Compressor((), lambda: None),
        NoEvents(),
        random.Random(seed),
        lambda at: None,
    )


def make_appender(accumulator: RecordAccumulator) -> Appender:
    config, rng = accumulator.config, random.Random(0)
    runtime = ClientRuntime(config, rng, ClientKind("producer", ProducerClosedError))
    runtime.started = True
    transactions = NoTransactions(
        config, ProducerState("p"), runtime.brokers, accumulator, rng, lambda: None
    )
    admission = Admission(runtime, accumulator, transactions)
    choice = PartitionChoice(config, accumulator.switch_sticky)
    return Appender(
        config, accumulator, accumulator.pool, transactions, admission, choice, SenderWakeup()
    )


def drain(accumulator: RecordAccumulator, node_id: int, now: float) -> list[ProducerBatch]:
    """Take one request's batches; every partition may send."""
    accumulator.advance(now)
    return accumulator.drain(node_id, now, None)


class Ready(NamedTuple):
    """The state that the sender finds: nodes with a batch to send, when that may change, and
    whether a batch waits for a leader.
    """

    nodes: list[int]
    look_again_at: float
    leaderless: bool


def ready(accumulator: RecordAccumulator, now: float) -> Ready:
    look_again_at = accumulator.advance(now)
    nodes = [node for node in accumulator.leaders() if accumulator.is_ready(node, now)]
    return Ready([node for node in nodes if node >= 0], look_again_at, -1 in nodes)
