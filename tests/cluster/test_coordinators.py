"""Lookups of coordinators in all versions, and again when they move, die or disappear."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import ANY

import pytest

from aioprod.cluster.coordinators import Coordinators, CoordinatorType
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerConnectionError,
    BrokerError,
    ProtocolError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.net.connection import Connection
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Request
from aioprod.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioprod.testing import EmbeddedCluster, change_answer, drop_after, fail, hold

TRANSACTION, GROUP = CoordinatorType.TRANSACTION, CoordinatorType.GROUP


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as running:
        yield running


@pytest.fixture
async def brokers(cluster: EmbeddedCluster) -> AsyncIterator[Brokers]:
    made = Brokers(config(cluster), random.Random(1))
    yield made
    await made.close()


def config(cluster: EmbeddedCluster, **settings: int) -> ClientConfig:
    fast = {
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "reconnect_backoff_ms": 5,
        "reconnect_backoff_max_ms": 20,
        "request_timeout_ms": 3_000,
    }
    return ClientConfig(bootstrap_servers=cluster.bootstrap_servers, **{**fast, **settings})  # type: ignore[arg-type]


@pytest.fixture
def coordinators(cluster: EmbeddedCluster, brokers: Brokers) -> Coordinators:
    return Coordinators(config(cluster), brokers, random.Random(1))


def ask_identity(connection: Connection) -> tuple[Request[InitProducerIdResponse], int]:
    """Some request that only the coordinator answers."""
    return InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=60_000
    ), connection.pick_version(InitProducerIdRequest)


async def identity(coordinators: Coordinators) -> int:
    reply = await coordinators.request(TRANSACTION, "x", ask_identity)
    return reply.error_code or reply.producer_epoch


def searches(cluster: EmbeddedCluster) -> int:
    return sum(seen.api_key == ApiKey.FIND_COORDINATOR for seen in cluster.requests)


async def test_a_coordinator_is_found_once(
    cluster: EmbeddedCluster, coordinators: Coordinators
) -> None:
    for node_id in (3, 1):
        cluster.move_coordinator("transaction", "x", node_id)
        coordinators.forget(TRANSACTION, "x")
        assert await identity(coordinators) in (0, 2)
        assert await identity(coordinators) in (1, 3)
        asked = [
            seen.node_id for seen in cluster.requests if seen.api_key == ApiKey.INIT_PRODUCER_ID
        ]
        assert asked[-2:] == [node_id, node_id]
    assert searches(cluster) == 2


async def test_groups_and_transactional_ids_of_one_name_are_two(
    cluster: EmbeddedCluster, coordinators: Coordinators
) -> None:
    cluster.move_coordinator("transaction", "x", 1)
    cluster.move_coordinator("group", "x", 2)
    one, other = (
        await coordinators.connection(TRANSACTION, "x"),
        await coordinators.connection(GROUP, "x"),
    )
    assert (one.address, other.address) == (cluster.address(1), cluster.address(2))


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("kind", CoordinatorType)
async def test_every_version(
    cluster: EmbeddedCluster,
    coordinators: Coordinators,
    monkeypatch: pytest.MonkeyPatch,
    kind: CoordinatorType,
    version: int,
) -> None:
    picked = Connection.pick_version

    def pick(self: Connection, request_type: type[Request[Any]], newest: int | None = None) -> int:
        return picked(
            self, request_type, version if request_type is FindCoordinatorRequest else newest
        )

    monkeypatch.setattr(Connection, "pick_version", pick)
    if version == 0 and kind is TRANSACTION:
        with pytest.raises(UnsupportedVersionError, match="too old for transactions"):
            await coordinators.connection(kind, "x")
        return
    connection = await coordinators.connection(kind, "x")
    assert connection.address == cluster.address(
        cluster.coordinator("transaction" if kind is TRANSACTION else "group", "x")
    )
    assert [
        seen.api_version for seen in cluster.requests if seen.api_key == ApiKey.FIND_COORDINATOR
    ] == [version]


async def test_no_coordinator_yet_is_waited_for(
    cluster: EmbeddedCluster, coordinators: Coordinators
) -> None:
    cluster.on(ApiKey.FIND_COORDINATOR, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE), times=3)
    assert await identity(coordinators) == 0
    assert searches(cluster) == 4


async def test_no_coordinator_ever_is_an_error_in_time(
    cluster: EmbeddedCluster, brokers: Brokers
) -> None:
    cluster.on(ApiKey.FIND_COORDINATOR, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE), times=None)
    impatient = Coordinators(config(cluster, request_timeout_ms=100), brokers, random.Random(1))
    with pytest.raises(
        BrokerError, match=r"no coordinator of transaction 'x'.*COORDINATOR_NOT_AVAILABLE"
    ):
        await identity(impatient)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_a_refusal_is_not_retried(
    cluster: EmbeddedCluster, coordinators: Coordinators, code: ErrorCode
) -> None:
    cluster.on(ApiKey.FIND_COORDINATOR, fail(code), times=None)
    with pytest.raises(BrokerError) as caught:
        await identity(coordinators)
    assert caught.value.code == code
    assert searches(cluster) == 1


async def test_a_dead_coordinator_is_looked_up_again(
    cluster: EmbeddedCluster, coordinators: Coordinators
) -> None:
    """aiokafka#1134: a dead coordinator was never looked up again."""
    cluster.move_coordinator("transaction", "x", 2)
    assert await identity(coordinators) == 0
    await cluster.stop_node(2)
    async with asyncio.timeout(3):
        try:
            epoch = await identity(coordinators)
        except BrokerConnectionError:  # the connection was just breaking
            epoch = await identity(coordinators)
    assert epoch == 1
    assert cluster.requests[-1].node_id != 2


async def test_a_coordinator_that_comes_back_elsewhere(
    cluster: EmbeddedCluster, coordinators: Coordinators
) -> None:
    """Its id is known with an address that is out of date, and no record is sent that would refresh
    metadata.
    """
    cluster.move_coordinator("transaction", "x", 2)
    old = (await coordinators.connection(TRANSACTION, "x")).address
    await cluster.stop_node(2)
    await cluster.start_node(2, new_port=True)
    assert cluster.address(2) != old
    async with asyncio.timeout(3):
        assert (await coordinators.connection(TRANSACTION, "x")).address == cluster.address(2)


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "action", [drop_after, lambda: hold(asyncio.Event())], ids=["broken", "silent"]
)
async def test_a_request_without_an_answer_makes_the_next_one_search(
    cluster: EmbeddedCluster, brokers: Brokers, action: Callable[[], Any]
) -> None:
    quick = Coordinators(config(cluster, request_timeout_ms=200), brokers, random.Random(1))
    brokers._config = config(cluster, request_timeout_ms=200)
    cluster.on(ApiKey.INIT_PRODUCER_ID, action(), times=1)
    with pytest.raises((BrokerConnectionError, RequestTimedOutError)):
        await identity(quick)
    assert await identity(quick) in (0, 1)
    assert searches(cluster) == 2


async def test_an_answer_about_another_key_is_refused(
    cluster: EmbeddedCluster, brokers: Brokers
) -> None:
    def other_key(reply: FindCoordinatorResponse) -> None:
        reply.coordinators[0].key = "y"

    cluster.on(ApiKey.FIND_COORDINATOR, change_answer(other_key), times=None)
    impatient = Coordinators(config(cluster, request_timeout_ms=50), brokers, random.Random(1))
    with pytest.raises(ProtocolError, match="does not contain 'x'"):
        await identity(impatient)


async def test_coordinators_of_many_are_found_with_one_request(
    cluster: EmbeddedCluster, coordinators: Coordinators
) -> None:
    names = [f"id-{number}" for number in range(50)]
    for number, name in enumerate(names):
        cluster.move_coordinator("transaction", name, 1 + number % 3)
    assert await coordinators.nodes(TRANSACTION, names) == {
        name: 1 + number % 3 for number, name in enumerate(names)
    }
    assert await coordinators.nodes(TRANSACTION, [*names[:3], "another"]) == {
        **dict(zip(names[:3], (1, 2, 3), strict=True)),
        "another": ANY,
    }
    assert searches(cluster) == 2, "known ones are not asked for again"
    coordinators.forget(TRANSACTION, names[0])
    cluster.move_coordinator("transaction", names[0], 3)
    assert await coordinators.nodes(TRANSACTION, names[:1]) == {names[0]: 3}


async def test_brokers_that_take_one_name_a_request_are_asked_for_each(
    cluster: EmbeddedCluster, coordinators: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FindCoordinatorRequest, "MAX_VERSION", 3)
    assert set(await coordinators.nodes(TRANSACTION, ["a", "b", "c"])) == {"a", "b", "c"}
    assert searches(cluster) == 3


async def test_one_coordinator_that_is_refused_fails_all(
    cluster: EmbeddedCluster, coordinators: Coordinators
) -> None:
    cluster.on(ApiKey.FIND_COORDINATOR, fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match="no coordinator of transaction 'a'"):
        await coordinators.nodes(TRANSACTION, ["a", "b"])


async def test_cancelled_at_every_step_it_can_be_asked_again(
    cluster: EmbeddedCluster, coordinators: Coordinators
) -> None:
    for steps in range(200):
        coordinators.forget(TRANSACTION, "x")
        waiter = asyncio.create_task(identity(coordinators))
        for _ in range(steps):
            await asyncio.sleep(0)
        if waiter.done():
            break
        waiter.cancel()
        await asyncio.wait([waiter])
        async with asyncio.timeout(3):
            assert await identity(coordinators) >= 0
    else:
        pytest.fail("it never ended")
    assert steps > 5


def know_all(brokers: Brokers, cluster: EmbeddedCluster) -> None:
    nodes = {}
    for node_id in cluster.node_ids:
        host, _, port = cluster.address(node_id).rpartition(":")
        nodes[node_id] = BrokerAddress(node_id, host, int(port))
    brokers.update_nodes(nodes)


@pytest.mark.parametrize("moved", [2, 3])
async def test_a_node_that_no_longer_coordinates_is_not_asked_who_does(
    cluster: EmbeddedCluster, brokers: Brokers, coordinators: Coordinators, moved: int
) -> None:
    """A node that is cut off from the others still names itself."""

    def name_1(answer: FindCoordinatorResponse) -> None:
        answer.coordinators[0].node_id = 1
        answer.coordinators[0].port = int(cluster.address(1).rpartition(":")[2])

    cluster.on_every(ApiKey.FIND_COORDINATOR, change_answer(name_1), node=1)
    cluster.move_coordinator("transaction", "x", moved)
    know_all(brokers, cluster)
    await brokers.connection(1)
    assert await identity(coordinators) == ErrorCode.NOT_COORDINATOR
    coordinators.forget(TRANSACTION, "x")
    assert await identity(coordinators) == 0
