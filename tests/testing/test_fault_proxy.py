"""Each fault of the proxy does what it says, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster
from tests.testing.fault_proxy import (
    CutAnswer,
    CutRequest,
    Fault,
    FaultProxy,
    RandomFaults,
    SingleBytes,
    Stall,
)
from tests.testing.raw_client import RawClient, make_batch, produce_request
from tests.waiting import stored, until


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def address(listening: socket.socket) -> str:
    return f"127.0.0.1:{listening.getsockname()[1]}"


async def test_without_a_plan_all_passes(broker: EmbeddedCluster, listening: socket.socket) -> None:
    broker.create_topic("t")
    async with (
        FaultProxy(listening, broker.bootstrap_servers) as proxy,
        RawClient(address(listening)) as client,
    ):
        assert [
            (await client.produce("t", make_batch([value]))).base_offset for value in (b"a", b"b")
        ] == [0, 1]
    assert stored(broker) == [b"a", b"b"]
    assert proxy.passed == {ApiKey.PRODUCE: 2} and not proxy.done


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("after", [0, 3, 20, -1])
async def test_a_request_cut_short_is_not_stored(
    broker: EmbeddedCluster, listening: socket.socket, after: int, reset: bool
) -> None:
    broker.create_topic("t")
    async with FaultProxy(
        listening, broker.bootstrap_servers, lambda api_key, size: CutRequest(after % size, reset)
    ) as proxy:
        async with RawClient(address(listening)) as client:
            client.send(produce_request("t", make_batch([b"a"])), 9)
            assert await client.is_closed()
        assert proxy.done == {(CutRequest, ApiKey.PRODUCE): 1} and not proxy.passed
    assert stored(broker) == []


@pytest.mark.parametrize("after", [0, 3, 9, 10_000])
async def test_a_lost_answer_is_that_of_a_stored_batch(
    broker: EmbeddedCluster, listening: socket.socket, after: int
) -> None:
    broker.create_topic("t")
    async with FaultProxy(
        listening, broker.bootstrap_servers, lambda api_key, size: CutAnswer(after)
    ) as proxy:
        async with RawClient(address(listening)) as client:
            client.send(produce_request("t", make_batch([b"a"])), 9)
            with pytest.raises(asyncio.IncompleteReadError):
                await client.receive_frame()
        assert proxy.done == {(CutAnswer, ApiKey.PRODUCE): 1}
    assert stored(broker) == [b"a"]


async def test_a_stalled_request_arrives_even_if_its_client_is_gone(
    broker: EmbeddedCluster, listening: socket.socket
) -> None:
    broker.create_topic("t")
    async with FaultProxy(
        listening, broker.bootstrap_servers, lambda api_key, size: Stall(0.05)
    ) as proxy:
        async with RawClient(address(listening)) as client:
            client.send(produce_request("t", make_batch([b"a"])), 9)
            await until(lambda: proxy.count(Stall) == 1)
            assert stored(broker) == []
        await until(lambda: stored(broker) == [b"a"])


async def test_delayed_requests_arrive_later_even_if_their_client_is_gone(
    broker: EmbeddedCluster, listening: socket.socket
) -> None:
    broker.create_topic("t")
    async with FaultProxy(listening, broker.bootstrap_servers) as proxy:
        proxy.delay(requests=True)
        async with RawClient(address(listening)) as client:
            client.send(produce_request("t", make_batch([b"a"])), 9)
            await until(lambda: proxy.waiting == 1)
        assert stored(broker) == []
        proxy.pass_all()
        await until(lambda: stored(broker) == [b"a"])


async def test_delayed_answers_are_those_of_stored_batches(
    broker: EmbeddedCluster, listening: socket.socket
) -> None:
    broker.create_topic("t")
    async with (
        FaultProxy(listening, broker.bootstrap_servers) as proxy,
        RawClient(address(listening)) as client,
    ):
        proxy.delay(answers=True)
        produced = asyncio.create_task(client.produce("t", make_batch([b"a"])))
        await until(lambda: proxy.waiting == 1)
        assert stored(broker) == [b"a"] and not produced.done()
        proxy.pass_all()
        assert (await produced).base_offset == 0


async def test_single_bytes_both_ways(broker: EmbeddedCluster, listening: socket.socket) -> None:
    broker.create_topic("t")
    async with FaultProxy(
        listening, broker.bootstrap_servers, lambda api_key, size: SingleBytes()
    ) as proxy:
        async with RawClient(address(listening)) as client:
            assert (await client.produce("t", make_batch([b"a", b"b"]))).base_offset == 0
        assert proxy.done == {(SingleBytes, ApiKey.PRODUCE): 1}
    assert stored(broker) == [b"a", b"b"]


def drawn(seed: int) -> list[Fault | None]:
    faults = RandomFaults(seed, 0.5, 0.1)
    return [faults(0, 100) for _ in range(200)]


def test_a_seed_always_gives_the_same_plan() -> None:
    assert drawn(1) == drawn(1) != drawn(2)
    assert {type(fault) for fault in drawn(1)} == {
        type(None),
        CutRequest,
        CutAnswer,
        Stall,
        SingleBytes,
    }
    assert 60 < drawn(1).count(None) < 140
