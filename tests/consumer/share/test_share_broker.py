"""The session with one broker, whose responses the tests make."""

from __future__ import annotations

import asyncio
import math
import random
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from aioprod import AcknowledgeType, BrokerConnectionError, BrokerError, ErrorCode, KafkaError
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.share.acknowledgements import (
    GAP,
    OffsetRun,
    PartitionAcknowledgements,
    SharePartition,
)
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.broker import ShareBroker
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import Leader, ShareRequests
from aioprod.consumer.share.session import CLOSING_EPOCH, SessionChange
from aioprod.net.backoff import Backoff
from aioprod.protocol.messages import share_acknowledge, share_fetch
from aioprod.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from aioprod.protocol.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchResponse,
)
from aioprod.types import TopicPartition
from tests.consumer.share.share_groups import reporter_to

pytestmark = pytest.mark.virtual_time

TOPIC = uuid.UUID(int=1)
ZERO, ONE = SharePartition(TOPIC, "t", 0), SharePartition(TOPIC, "t", 1)
ACCEPT, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RENEW
LOCK_MS = 30_000
LIMIT_S = 10.0


@dataclass
class Request:
    """A request that was sent.

    Attributes:
        kind: "fetch", "acknowledge" or "renew".
        epoch: the epoch of the session.
        runs: the acknowledgements by partition.
    """

    kind: str
    epoch: int
    runs: dict[int, list[OffsetRun]]
    future: asyncio.Future[Any]


def runs_of(sent: Mapping[SharePartition, PartitionAcknowledgements]) -> dict[int, list[OffsetRun]]:
    return {partition.partition: each.batches(OffsetRun) for partition, each in sent.items()}


@dataclass
class World:
    """The broker's side, and the collaborators of the session."""

    backoff: Backoff = field(default_factory=lambda: Backoff(100, 1_000, random.Random(1)))
    group_id: str = "g"
    principal: str = "User:alice"
    wants_records: bool = False
    sent: list[Request] = field(default_factory=list)
    got: list[SharePartition] = field(default_factory=list)
    locked_until: list[float] = field(default_factory=list)
    errors: list[KafkaError] = field(default_factory=list)
    stale_calls: int = 0
    is_connected: bool = True
    reported: list[tuple[TopicPartition, frozenset[int], KafkaError | None]] = field(
        default_factory=list
    )

    # -- as ShareRequests

    def connected(self, node_id: int) -> bool:
        return self.is_connected

    def supports_renewal(self, node_id: int) -> bool:
        return True

    def fetch(
        self,
        node_id: int,
        change: SessionChange,
        acknowledgements: Mapping[SharePartition, PartitionAcknowledgements],
    ) -> asyncio.Future[Any]:
        return self._send("fetch", change.epoch, acknowledgements)

    def acknowledge(
        self,
        node_id: int,
        epoch: int,
        acknowledgements: Mapping[SharePartition, PartitionAcknowledgements],
        *,
        renews: bool,
        closing: bool,
    ) -> asyncio.Future[Any]:
        kind = "renew" if renews else "acknowledge"
        return self._send(kind, CLOSING_EPOCH if closing else epoch, acknowledgements)

    def _send(
        self, kind: str, epoch: int, sent: Mapping[SharePartition, PartitionAcknowledgements]
    ) -> asyncio.Future[Any]:
        assert all(request.future.done() for request in self.sent), "two requests at a time"
        future = asyncio.get_running_loop().create_future()
        self.sent.append(Request(kind, epoch, runs_of(sent), future))
        return future

    # -- as Recipient

    def fetched(
        self,
        broker: ShareBroker,
        partition: SharePartition,
        data: PartitionData,
        locked_until: float,
    ) -> int:
        self.got.append(partition)
        self.locked_until.append(locked_until)
        self.wants_records = False
        return sum(each.last_offset - each.first_offset + 1 for each in data.acquired_records)

    def renewed(self, partition: SharePartition, offset: int, locked_until: float) -> None:
        self.locked_until.append(locked_until)

    # -- as ShareAssignment

    def leaders_moved(self, leaders: Iterable[Leader]) -> None:
        self.stale_calls += 1

    def failed(self, what: object, error: KafkaError | None) -> None:
        if error is not None:
            self.errors.append(error)

    # -- the tests' side

    def callback(
        self, offsets: Mapping[TopicPartition, frozenset[int]], error: KafkaError | None
    ) -> None:
        ((tp, each),) = offsets.items()
        self.reported.append((tp, each, error))

    async def answer(self, response: Any) -> None:
        """Answer the request in flight."""
        future = self.sent[-1].future
        if isinstance(response, KafkaError):
            future.set_exception(response)
        else:
            future.set_result(response)
        await asyncio.sleep(0)

    def codes(self) -> list[ErrorCode | None]:
        return [
            error.code if isinstance(error, BrokerError) else None for _, _, error in self.reported
        ]


def fetch_response(*codes: int, acknowledged: int = 0) -> ShareFetchResponse:
    """Partitions with these error codes, and with records if there is none."""
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=LOCK_MS,
        responses=[
            share_fetch.ShareFetchableTopicResponse(
                TOPIC,
                [
                    PartitionData(
                        number,
                        error_code=code,
                        acknowledge_error_code=acknowledged,
                        acquired_records=[] if code else [AcquiredRecords(0, 9, 1)],
                    )
                    for number, code in enumerate(codes)
                ],
            )
        ],
    )


def acknowledge_response(**codes: int) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        responses=[
            share_acknowledge.ShareAcknowledgeTopicResponse(
                TOPIC,
                [
                    share_acknowledge.PartitionData(int(name[1:]), error_code=code)
                    for name, code in codes.items()
                ],
            )
        ]
    )


async def opened(reporter: ShareReporter | None = None) -> tuple[World, ShareBroker]:
    """A session with records of both partitions."""
    world = World(wants_records=True)
    reporter = reporter or reporter_to()
    broker = ShareBroker(
        1,
        cast("ShareRequests", world),
        world,
        cast("ShareAssignment", world),
        Outcomes(world.callback, reporter),
        reporter,
        Notifier(),
        LIMIT_S,
    )
    broker.wanted = frozenset([ZERO, ONE])
    broker.look()
    await world.answer(fetch_response(0, 0))
    assert world.got == [ZERO, ONE]
    return world, broker


def accept(broker: ShareBroker, partition: SharePartition, *offsets: int) -> None:
    until = asyncio.get_running_loop().time() + LOCK_MS / 1000
    for offset in offsets:
        broker.acknowledge(partition, [offset], ACCEPT, broker.session.generation, until)


async def test_acknowledgements_go_with_the_next_fetch() -> None:
    world, broker = await opened()
    accept(broker, ZERO, 0, 1)
    broker.skip(ONE, [(3, 5)], GAP, math.inf)
    world.wants_records = True
    broker.look()
    assert [(each.kind, each.epoch) for each in world.sent] == [("fetch", 0), ("fetch", 1)]
    assert world.sent[1].runs == {0: [OffsetRun(0, 1, [ACCEPT])], 1: [OffsetRun(3, 5, [GAP])]}
    accept(broker, ZERO, 2)  # waits for the response
    broker.flush()
    await asyncio.sleep(1)
    assert len(world.sent) == 2
    await world.answer(fetch_response(0, 0))
    assert world.reported == [(ZERO.tp, frozenset([0, 1]), None)]
    broker.flush()
    assert (world.sent[2].kind, world.sent[2].epoch) == ("acknowledge", 2)


async def test_without_a_fetch_they_are_sent_after_100_ms() -> None:
    world, broker = await opened()
    accept(broker, ZERO, 0)
    await asyncio.sleep(0.09)
    accept(broker, ONE, 1)
    assert len(world.sent) == 1
    await asyncio.sleep(0.02)
    assert world.sent[1].runs == {0: [OffsetRun(0, 0, [ACCEPT])], 1: [OffsetRun(1, 1, [ACCEPT])]}


async def test_a_renewal_is_sent_at_once_and_never_with_a_fetch() -> None:
    world, broker = await opened()
    until = asyncio.get_running_loop().time() + 30
    broker.acknowledge(ZERO, [0], RENEW, 0, until)
    world.wants_records = True
    await asyncio.sleep(0.001)
    assert [each.kind for each in world.sent] == ["fetch", "renew"]
    await world.answer(acknowledge_response(p0=0))
    assert [each.kind for each in world.sent] == ["fetch", "renew", "fetch"]


async def test_locks_begin_when_the_request_was_sent() -> None:
    """The response may be handled late: the event loop was blocked, or the process frozen."""
    world, broker = await opened()
    world.wants_records = True
    began = asyncio.get_running_loop().time()
    broker.look()
    await asyncio.sleep(20)
    await world.answer(fetch_response(0))
    assert world.locked_until[-1] == began + LOCK_MS / 1000
    began = asyncio.get_running_loop().time()
    broker.acknowledge(ZERO, [0], RENEW, 0, world.locked_until[-1])
    broker.flush()
    await asyncio.sleep(5)
    await world.answer(acknowledge_response(p0=0))
    assert world.locked_until[-1] == began + LOCK_MS / 1000


async def test_what_the_response_does_not_have_is_not_confirmed() -> None:
    world, broker = await opened()
    accept(broker, ZERO, 0)
    accept(broker, ONE, 1)
    broker.flush()
    await world.answer(acknowledge_response(p0=0))
    assert world.codes() == [None, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert not broker.acknowledging


async def test_errors_that_a_retry_cures_are_retried_within_the_limit() -> None:
    world, broker = await opened()
    accept(broker, ZERO, 0)
    accept(broker, ONE, 1)
    broker.flush()
    retriable = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    await world.answer(acknowledge_response(p0=retriable, p1=0))
    assert world.reported == [(ONE.tp, frozenset([1]), None)]
    began = asyncio.get_running_loop().time()
    while broker.acknowledging:
        sent = len(world.sent)
        await asyncio.sleep(2)  # longer than any backoff
        assert len(world.sent) == sent + 1
        assert world.sent[-1].runs == {0: [OffsetRun(0, 0, [ACCEPT])]}
        await world.answer(acknowledge_response(p0=retriable))
    assert asyncio.get_running_loop().time() - began >= LIMIT_S
    assert world.codes()[1:] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


async def test_a_moved_partition_is_not_retried() -> None:
    world, broker = await opened()
    accept(broker, ZERO, 0)
    broker.flush()
    await world.answer(acknowledge_response(p0=int(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    assert world.codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.stale_calls == 1


@pytest.mark.parametrize(
    "failure",
    [
        BrokerConnectionError("gone"),
        ShareFetchResponse(error_code=int(ErrorCode.SHARE_SESSION_NOT_FOUND)),
        ShareFetchResponse(error_code=int(ErrorCode.INVALID_SHARE_SESSION_EPOCH)),
    ],
    ids=str,
)
async def test_a_lost_session_begins_again_and_fails_its_acknowledgements(failure: Any) -> None:
    world, broker = await opened()
    accept(broker, ZERO, 0)
    world.wants_records = True
    broker.look()
    accept(broker, ONE, 1)  # not sent yet
    await world.answer(failure)
    accept_old = AcknowledgeType.ACCEPT
    broker.acknowledge(ONE, [2], accept_old, 0, asyncio.get_running_loop().time() + 30)
    assert [(tp, offsets) for tp, offsets, _ in world.reported] == [
        (ZERO.tp, frozenset([0])),
        (ONE.tp, frozenset([1])),
        (ONE.tp, frozenset([2])),
    ]
    assert all(error is not None for _, _, error in world.reported)
    assert not broker.acknowledging
    await asyncio.sleep(0.2)
    assert (world.sent[-1].kind, world.sent[-1].epoch, world.sent[-1].runs) == ("fetch", 0, {})


async def test_a_partition_with_an_error_is_asked_for_after_a_pause() -> None:
    world, broker = await opened()
    for _ in range(5):
        world.wants_records = True
        broker.look()
        sent = len(world.sent)
        await world.answer(fetch_response(int(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
        assert len(world.sent) == sent
        await asyncio.sleep(0.2)
        assert len(world.sent) == sent + 1
        await world.answer(fetch_response(0, 0))
    assert world.stale_calls == 5


async def test_close_waits_for_the_request_in_flight_and_ends_the_session() -> None:
    world, broker = await opened()
    world.wants_records = True
    broker.look()
    accept(broker, ZERO, 4)
    broker.acknowledge(ZERO, [5], RENEW, 0, asyncio.get_running_loop().time() + 30)
    closing = asyncio.create_task(broker.close())
    await asyncio.sleep(1)
    assert len(world.sent) == 2
    await world.answer(fetch_response(0, 0))
    await asyncio.sleep(0.01)
    assert (world.sent[2].kind, world.sent[2].epoch) == ("acknowledge", CLOSING_EPOCH)
    assert world.sent[2].runs == {0: [OffsetRun(4, 4, [ACCEPT])]}
    await world.answer(acknowledge_response(p0=0))
    await closing
    assert world.reported == [(ZERO.tp, frozenset([4]), None)]


async def test_the_end_fails_what_has_no_outcome() -> None:
    world, broker = await opened()
    accept(broker, ZERO, 1)
    broker.flush()
    accept(broker, ZERO, 2)
    broker.end(KafkaError("closed"))
    accept(broker, ZERO, 3)
    assert [offsets for _, offsets, _ in world.reported] == [{1}, {2}, {3}]
    await world.answer(acknowledge_response(p0=0))  # too late
    await asyncio.sleep(1)
    assert len(world.sent) == 2
    assert len(world.reported) == 3


async def test_another_leader_is_looked_for_while_the_broker_can_not_be_reached() -> None:
    world, broker = await opened()
    world.wants_records = True
    broker.look()
    world.is_connected = False
    await world.answer(BrokerConnectionError("gone"))
    calls = world.stale_calls
    broker.look()  # as after each snapshot of the cluster
    assert world.stale_calls == calls + 1
    broker.wanted = frozenset()  # another one leads
    broker.look()
    assert world.stale_calls == calls + 1
