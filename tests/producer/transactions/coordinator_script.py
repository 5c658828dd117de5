"""Coordinators that answer what a test says, without a network."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from aioprod.cluster.coordinators import CoordinatorType
from aioprod.config.producer import ProducerConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError, KafkaError, UnsupportedVersionError
from aioprod.metrics import ProducerMetrics
from aioprod.producer.sequences import ProducerState
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from aioprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from aioprod.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioprod.types import TopicPartition

ResponseT = TypeVar("ResponseT", bound=Message)

INIT, ADD, ADD_OFFSETS, OFFSETS, END = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)

_NAMES: dict[type[Request[Any]], str] = {
    InitProducerIdRequest: INIT,
    AddPartitionsToTxnRequest: ADD,
    AddOffsetsToTxnRequest: ADD_OFFSETS,
    TxnOffsetCommitRequest: OFFSETS,
    EndTxnRequest: END,
}

Step = ErrorCode | KafkaError | asyncio.Event | Callable[[], None]
"""The outcome of one request: an error code in the response, a failed request, a pause until the
event is set, or a function to call.
"""


class FakePeer:
    """A broker's versions; those not named are the newest. ``level`` is that of the feature
    transaction.version, None if it is unknown.
    """

    def __init__(self, newest: Mapping[type[Request[Any]], int], level: int | None) -> None:
        kinds: list[type[Request[Any]]] = [*_NAMES, ProduceRequest]
        self.versions: dict[int, tuple[int, int]] = {
            kind.API_KEY: (0, newest.get(kind, kind.MAX_VERSION)) for kind in kinds
        }
        self.finalized_features: dict[str, int] = (
            {} if level is None else {"transaction.version": level}
        )

    def pick_version(self, request_type: type[Request[Any]], newest: int | None = None) -> int:
        low, high = self.versions[request_type.API_KEY]
        version = min(high, request_type.MAX_VERSION if newest is None else newest)
        if version < low:
            raise UnsupportedVersionError(request_type.__name__)
        return version


class CoordinatorScript:
    """In place of :class:`aioprod.cluster.coordinators.Coordinators`.

    Attributes:
        requests: names of the requests that arrived, with the version of each.
        messages: the messages themselves.
        forgotten: the coordinators that were to be looked for again.
        added: partitions and groups that the coordinator has in the open transaction.
        answers: by name, the code that follows on a pause.
    """

    trouble: KafkaError | None = None

    def __init__(self, *, level: int | None = 0) -> None:
        self.peer = FakePeer({}, level)
        self.requests: list[str] = []
        self.versions: list[tuple[str, int]] = []
        self.messages: list[Message] = []
        self.forgotten: list[str] = []
        self.keys: list[tuple[CoordinatorType, str]] = []
        self.producer_id = 1000
        self.epoch = -1
        self.added: list[TopicPartition | str] = []
        self.answers: dict[str, ErrorCode] = {}
        self.ended: list[bool] = []
        self._steps: dict[str, deque[Step]] = {}

    def on(self, name: str, *steps: Step) -> None:
        """Do these to the next requests of a kind, one each; then they succeed again."""
        self._steps.setdefault(name, deque()).extend(steps)

    def forget(self, kind: CoordinatorType, key: str) -> None:
        self.forgotten.append(f"{kind.name.lower()} {key}")

    async def request(
        self,
        kind: CoordinatorType,
        key: str,
        prepare: Callable[[Any], tuple[Request[ResponseT], int]],
    ) -> ResponseT:
        await asyncio.sleep(0)  # as if it had to be found
        message, version = prepare(self.peer)
        message.encode(version)  # it has to fit its version
        name = _NAMES[type(message)]
        self.requests.append(name)
        self.versions.append((name, version))
        self.messages.append(message)
        self.keys.append((kind, key))
        code = ErrorCode.NONE
        steps = self._steps.get(name)
        step = steps.popleft() if steps else ErrorCode.NONE
        if isinstance(step, asyncio.Event):
            await step.wait()
            code = self.answers.get(name, ErrorCode.NONE)
        elif isinstance(step, ErrorCode):
            code = step
        elif isinstance(step, KafkaError):
            await asyncio.sleep(0)
            raise step
        else:
            step()
        await asyncio.sleep(0)
        return self._answer(message, version, code)  # type: ignore[return-value]

    def _answer(self, message: Message, version: int, code: ErrorCode) -> Message:
        match message:
            case InitProducerIdRequest():
                if not code:
                    self.epoch += 1
                return InitProducerIdResponse(
                    error_code=code, producer_id=self.producer_id, producer_epoch=self.epoch
                )
            case AddPartitionsToTxnRequest():
                return self._add_partitions(message, code)
            case AddOffsetsToTxnRequest():
                if not code:
                    self.added.append(message.group_id)
                return AddOffsetsToTxnResponse(error_code=code)
            case TxnOffsetCommitRequest():
                return TxnOffsetCommitResponse(
                    topics=[
                        TxnOffsetCommitResponseTopic(
                            t.name,
                            t.topic_id,
                            [
                                TxnOffsetCommitResponsePartition(p.partition_index, code)
                                for p in t.partitions
                            ],
                        )
                        for t in message.topics
                    ]
                )
            case EndTxnRequest():
                if code:
                    return EndTxnResponse(error_code=code)
                self.added.clear()
                self.ended.append(message.committed)
                if version < 5:
                    return EndTxnResponse()
                self.epoch += 1
                return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        raise AssertionError(message)

    def _add_partitions(
        self, message: AddPartitionsToTxnRequest, code: ErrorCode
    ) -> AddPartitionsToTxnResponse:
        results = []
        for topic in message.v3_and_below_topics:
            if not code:
                self.added += [TopicPartition(topic.name, number) for number in topic.partitions]
            results.append(
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [AddPartitionsToTxnPartitionResult(n, code) for n in topic.partitions],
                )
            )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


class FakeSender:
    """In place of accumulator and sender: batches wait until the manager lets them go, and are
    acknowledged at once.
    """

    def __init__(self, coordinators: CoordinatorScript, **settings: Any) -> None:
        fast = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "max_block_ms": 2_000, **settings}
        self.config = ProducerConfig(transactional_id="x", **fast)
        self.producer = ProducerState("p", transactional=True)
        self.dropped: list[KafkaError] = []
        self.fatal: list[KafkaError] = []
        self.waiting: list[TopicPartition] = []
        self.in_flight: list[TopicPartition] = []
        self.written: list[TopicPartition] = []
        self.keep_answers = False
        self._changed = asyncio.Event()
        self.manager = TransactionManager(
            self.config,
            self.producer,
            coordinators,
            lambda names: {},
            self,
            ProducerMetrics(30_000, 2),
            random.Random(1),
            self._changed.set,
        )

    def send(self, *partitions: TopicPartition) -> None:
        """Open a batch for each of these partitions."""
        for tp in partitions:
            self.manager.check_may_send()
            self.waiting.append(tp)
            self.manager.partition_used(tp)

    def look(self) -> None:
        """One turn of the sender."""
        for tp in list(self.waiting):
            if self.manager.may_send(tp):
                self.waiting.remove(tp)
                self.manager.batch_sent(tp)
                self.in_flight.append(tp)
        if not self.keep_answers:
            self.written += self.in_flight
            self.in_flight.clear()

    def lose(self, error: KafkaError, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Fail what is in flight."""
        for tp in list(self.in_flight) if partitions is None else partitions:
            self.in_flight.remove(tp)
            self.manager.record_refused(tp, error)
            self.producer.bump()
        self._changed.set()

    def drop_unsent(self, error: KafkaError) -> None:
        """Fail what waits."""
        if self.waiting:
            self.dropped.append(error)
        for tp in self.waiting:
            self.manager.record_refused(tp, error)
        self.waiting.clear()
        self._changed.set()

    def abort(self, error: KafkaError) -> None:
        """Fail everything, permanently."""
        self.fatal.append(error)
        self.waiting.clear()
        self.in_flight.clear()
        self._changed.set()

    async def flush(self) -> None:
        """Return when nothing waits and nothing is in flight."""
        while True:
            self._changed.clear()
            self.look()
            if not self.waiting and not self.in_flight:
                return
            await self._changed.wait()


def broken() -> KafkaError:
    """A request without an answer."""
    return BrokerConnectionError("127.0.0.1:1: connection closed by the broker")
