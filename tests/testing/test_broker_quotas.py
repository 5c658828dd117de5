"""The embedded broker throttles clients that produce or fetch more than their quota: it shows them
to pause and mutes the connection meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import uuid

import pytest

from aioprod.errors import BrokerError
from aioprod.protocol.framing import encode_request
from aioprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.quotas.quotas import Quotas
from aioprod.testing.broker.quotas.throttle import Meter
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import RawClient, fetch_request, make_batch, produce_request
from tests.testing.raw_transactions import ask_until

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
RAW = "raw"  # the client id of RawClient


class TestMeter:
    def test_a_client_may_be_ten_seconds_ahead(self) -> None:
        meter = Meter()
        meter.add(1000, 5.0)
        assert meter.excess_seconds(100.0, 5.0) == 0
        meter.add(100, 5.0)
        assert meter.excess_seconds(100.0, 5.0) == pytest.approx(1.0)
        assert meter.excess_seconds(100.0, 16.5) == 0

    def test_what_is_eleven_seconds_old_is_forgotten(self) -> None:
        meter = Meter()
        meter.add(10_000, 5.0)
        meter.add(0, 15.9)
        assert meter.excess_seconds(100.0, 15.9) > 0
        meter.add(0, 16.0)
        assert meter.excess_seconds(100.0, 16.0) == 0


class TestWhichLimitCounts:
    def test_the_most_precise_one(self) -> None:
        limits = Quotas()
        order: list[dict[str, str | None]] = [
            {"user": "u", "client-id": "c"},
            {"user": "u", "client-id": None},
            {"user": "u"},
            {"user": None, "client-id": "c"},
            {"user": None, "client-id": None},
            {"user": None},
            {"client-id": "c"},
            {"client-id": None},
        ]
        for number, entity in reversed(list(enumerate(order, 1))):
            limits.alter(frozenset(entity.items()), {PRODUCER: number})
            found = limits.limit(PRODUCER, "u", "c")
            assert found is not None
            assert (found.limit, found.user, found.client_id) == (
                number,
                "u" if "user" in entity else "",
                "c" if "client-id" in entity else "",
            )
        assert limits.limit(CONSUMER, "u", "c") is None

    def test_an_empty_name_is_not_any_name(self) -> None:
        limits = Quotas()
        limits.alter(frozenset({("client-id", None)}), {PRODUCER: 5})
        found = limits.limit(PRODUCER, "ANONYMOUS", "")
        assert found is not None
        assert (found.limit, found.client_id) == (5, "")


async def test_a_producer_over_its_rate_is_asked_to_pause_and_not_listened_to(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t")
    request = produce_request("t", make_batch([b"x" * 20_000]))
    size = len(encode_request(request, 9, 1, RAW)) - 4
    limit = int(size / 10.1)  # of ten seconds, and a tenth
    broker.set_quota({PRODUCER: limit}, client_id=RAW)
    loop = asyncio.get_running_loop()
    async with RawClient(broker.bootstrap_servers) as client:
        answer = await client.call(request, 9)
        answered_at = loop.time()
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms == int((size / limit - 10) * 1000)
        await client.call(ApiVersionsRequest(), 0)
        assert loop.time() - answered_at > 0.05
    assert len(broker.records("t")) == 1


@pytest.mark.parametrize(
    "whom",
    [{"client_id": RAW}, {"client_id": ""}, {"user": "ANONYMOUS"}, {"user": "", "client_id": RAW}],
    ids=str,
)
async def test_the_answer_comes_before_the_pause_and_other_connections_have_none(
    broker: EmbeddedCluster, whom: dict[str, str]
) -> None:
    broker.create_topic("t")
    broker.set_quota({PRODUCER: 1}, **whom)
    async with (
        RawClient(broker.bootstrap_servers) as client,
        RawClient(broker.bootstrap_servers) as other,
    ):
        assert (
            await client.call(produce_request("t", make_batch([b"x" * 1000])), 9)
        ).throttle_time_ms > 60_000
        client.send(MetadataRequest(topics=[]), 9)
        await client.writer.drain()
        for _ in range(3):
            await other.call(ApiVersionsRequest(), 0)
    assert [request.api_key for request in broker.requests] == [0, 18, 18, 18]


async def test_a_reader_over_its_rate_gets_nothing_until_it_has_paused(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t")
    async with RawClient(broker.bootstrap_servers) as client:
        await client.produce("t", make_batch([b"x" * 9500]))
        await client.produce("t", make_batch([b"x" * 9500]))
        first = (await client.call(fetch_request("t", 0, partition_max_bytes=1), 12)).responses[
            0
        ].partitions[0].records or b""
        # Two such batches take ten seconds and a twentieth.
        broker.set_quota({CONSUMER: int(len(first) / 5.025)}, client_id=RAW)
        answers = [
            await client.call(fetch_request("t", offset, partition_max_bytes=1), 12)
            for offset in (0, 1)
        ]
        assert [len(answer.responses) for answer in answers] == [1, 0]
        assert answers[0].throttle_time_ms == 0
        assert answers[1].throttle_time_ms == pytest.approx(50, abs=15)
        while not (
            answer := await client.call(fetch_request("t", 1, partition_max_bytes=1), 12)
        ).responses:
            assert answer.throttle_time_ms > 0
        assert answer.responses[0].partitions[0].records


async def test_a_fetch_is_at_most_as_large_as_its_client_may_ever_get_at_once(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t")
    async with RawClient(broker.bootstrap_servers) as client:
        for _ in range(20):
            await client.produce("t", make_batch([b"x" * 950]))
        broker.set_quota({CONSUMER: 500}, client_id="")
        answer = await client.call(fetch_request("t", 0), 12)
    assert answer.throttle_time_ms == 0
    assert 4000 < len(answer.responses[0].partitions[0].records or b"") <= 5000


async def test_others_are_not_slowed_down(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    broker.set_quota({PRODUCER: 1, CONSUMER: 1}, client_id="another")
    broker.set_quota({PRODUCER: 1}, user="another")
    broker.set_quota({PRODUCER: 1}, client_id=RAW)
    broker.set_quota({PRODUCER: None}, client_id=RAW)
    async with RawClient(broker.bootstrap_servers) as client:
        assert (
            await client.call(produce_request("t", make_batch([b"x" * 1000])), 9)
        ).throttle_time_ms == 0
        assert (await client.call(fetch_request("t", 0), 12)).throttle_time_ms == 0


async def test_each_node_counts_for_itself() -> None:
    async with EmbeddedCluster(nodes=2) as cluster:
        cluster.create_topic("t", 2)
        request = [
            produce_request("t", make_batch([b"x" * 1000]), partition=index) for index in range(2)
        ]
        cluster.set_quota({PRODUCER: 150}, client_id=RAW)
        for node_id in (1, 2):
            async with RawClient(cluster.address(node_id)) as client:
                assert (await client.call(request[node_id - 1], 9)).throttle_time_ms == 0


async def test_a_client_that_leaves_during_its_pause_leaves_nothing(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t")
    broker.set_quota({PRODUCER: 1}, client_id=RAW)
    async with RawClient(broker.bootstrap_servers) as client:
        assert (
            await client.call(produce_request("t", make_batch([b"x" * 1000])), 9)
        ).throttle_time_ms > 60_000
        client.send(ApiVersionsRequest(), 0)
    async with asyncio.timeout(5):
        await broker.stop()


def test_what_can_not_be_limited_is_refused() -> None:
    limits = Quotas()
    wrong: list[tuple[str, float, str]] = [("foo", 1.0, "c"), (PRODUCER, 1.0, "")]
    wrong += [(PRODUCER, value, "c") for value in (0.0, -1.0, 1.5, math.nan, math.inf)]
    for key, value, name in wrong:
        with pytest.raises(BrokerError):
            limits.alter(frozenset({("client-id", name)}), {key: value})
    assert not limits


async def test_the_pause_is_that_of_a_real_broker(kafka: str) -> None:
    """The same requests under the same quota get the same pauses, except for the milliseconds that
    the requests take.
    """
    topic = f"quota-{uuid.uuid4().hex}"
    client_id = f"limited-{topic}"
    limit = AlterClientQuotasRequest(
        [
            EntryData(
                [EntityData("client-id", client_id)],
                [OpData(PRODUCER, 1000.0), OpData(CONSUMER, 1000.0)],
            )
        ]
    )
    pauses: list[list[int]] = []
    async with EmbeddedCluster() as embedded:
        for address in (kafka, embedded.bootstrap_servers):
            await create_topics_with_leaders(address, CreatableTopic(topic, 1, 1))
            async with RawClient(address) as admin:
                assert (await admin.call(limit, 1)).entries[0].error_code == 0
                await wait_for_limit(admin, client_id)
            pauses.append(
                [await pause_of_produce(address, topic, client_id, size) for size in (8_000, 2_500)]
            )
    real, ours = pauses
    assert (real[0], ours[0]) == (0, 0)
    assert real[1] > 0
    assert ours[1] == pytest.approx(real[1], abs=250)


async def pause_of_produce(address: str, topic: str, client_id: str, size: int) -> int:
    request = produce_request(topic, make_batch([b"x" * size]))
    async with RawClient(address) as client:
        client.writer.write(encode_request(request, 9, 1, client_id))
        return (await client.receive(type(request), 9))[1].throttle_time_ms


async def wait_for_limit(client: RawClient, client_id: str) -> None:
    """Wait until the real broker knows it."""
    asked = DescribeClientQuotasRequest([ComponentData("client-id", 0, client_id)])
    await ask_until(lambda answer: bool(answer.entries), lambda: client.call(asked, 1))
