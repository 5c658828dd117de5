"""Each action of a rule does what its name says."""

from __future__ import annotations

import asyncio
import time

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aioprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aioprod.testing import (
    Action,
    EmbeddedCluster,
    ThreadedCluster,
    close,
    cut_answer,
    delay,
    drop_after,
    drop_before,
    fail,
    hold,
    hold_answer,
    split,
    throttle,
)
from tests.testing.raw_client import RawClient, make_batch, produce_request
from tests.waiting import until

BATCH = make_batch([b"x"])


@pytest.fixture
async def with_topic(broker: EmbeddedCluster) -> EmbeddedCluster:
    broker.create_topic("t", 3)
    return broker


async def test_fail_answers_with_the_code_as_often_as_asked_and_applies_nothing(
    with_topic: EmbeddedCluster,
) -> None:
    rule = with_topic.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
    async with RawClient(with_topic.bootstrap_servers) as client:
        answers = [await client.produce("t", BATCH) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        0,
    ]
    assert rule.used == 2
    assert len(with_topic.records("t")) == 1


async def test_fail_hits_one_partition_where_one_is_named(with_topic: EmbeddedCluster) -> None:
    with_topic.on(
        ApiKey.PRODUCE, fail(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, topic="t", partition=1)
    )
    data = TopicProduceData(
        "t", partition_data=[PartitionProduceData(index, BATCH) for index in range(3)]
    )
    async with RawClient(with_topic.bootstrap_servers) as client:
        response = await client.call(ProduceRequest(acks=-1, topic_data=[data]), 9)
    assert [answer.error_code for answer in response.responses[0].partition_responses] == [
        0,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        0,
    ]
    assert [len(with_topic.records("t", index)) for index in range(3)] == [1, 0, 1]


async def test_a_failed_metadata_request_creates_no_topic(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE))
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    async with RawClient(broker.bootstrap_servers) as client:
        assert (await client.call(request, 9)).topics[
            0
        ].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert not broker.topics
        assert (await client.call(request, 9)).topics[0].error_code == 0


@pytest.mark.parametrize("action", [drop_before(), close()])
async def test_drop_before_closes_and_applies_nothing(
    with_topic: EmbeddedCluster, action: Action
) -> None:
    with_topic.on(ApiKey.PRODUCE, action)
    async with RawClient(with_topic.bootstrap_servers) as client:
        client.send(produce_request("t", BATCH), 9)
        assert await client.is_closed()
    assert with_topic.records("t") == []


async def test_drop_after_applies_and_closes(with_topic: EmbeddedCluster) -> None:
    with_topic.on(ApiKey.PRODUCE, drop_after())
    async with RawClient(with_topic.bootstrap_servers) as client:
        client.send(produce_request("t", BATCH), 9)
        assert await client.is_closed()
    assert len(with_topic.records("t")) == 1


async def test_answers_before_a_drop_still_arrive(with_topic: EmbeddedCluster) -> None:
    with_topic.on(
        ApiKey.PRODUCE, drop_before(), where=lambda request: b"poison" in repr(request).encode()
    )
    async with RawClient(with_topic.bootstrap_servers) as client:
        for value in (b"good", b"poison", b"never"):
            client.send(produce_request("t", make_batch([value])), 9)
        assert (await client.receive(ProduceRequest, 9))[0] == 1
        assert await client.is_closed()
    assert [record.value for record in with_topic.records("t")] == [b"good"]


async def test_keep_waits_for_the_event_before_the_request_is_applied(
    with_topic: EmbeddedCluster,
) -> None:
    event = asyncio.Event()
    rule = with_topic.on(ApiKey.PRODUCE, hold(event))
    async with (
        RawClient(with_topic.bootstrap_servers) as kept_back,
        RawClient(with_topic.bootstrap_servers) as other,
    ):
        waiting = asyncio.create_task(kept_back.produce("t", make_batch([b"late"])))
        await until(lambda: rule.used == 1)
        await other.produce("t", make_batch([b"early"]))
        event.set()
        assert (await waiting).base_offset == 1
    assert [record.value for record in with_topic.records("t")] == [b"early", b"late"]


async def test_keep_answer_applies_the_request_first(with_topic: EmbeddedCluster) -> None:
    event = asyncio.Event()
    with_topic.on(ApiKey.PRODUCE, hold_answer(event))
    async with RawClient(with_topic.bootstrap_servers) as client:
        waiting = asyncio.create_task(client.produce("t", BATCH))
        await with_topic.wait_for_records("t", 1)
        assert not waiting.done()
        event.set()
        assert (await waiting).base_offset == 0


async def test_a_kept_request_is_applied_though_its_client_has_gone(
    with_topic: EmbeddedCluster,
) -> None:
    event = asyncio.Event()
    rule = with_topic.on(ApiKey.PRODUCE, hold(event))
    async with RawClient(with_topic.bootstrap_servers) as client:
        client.send(produce_request("t", BATCH), 9)
        await until(lambda: rule.used == 1)
    event.set()
    await with_topic.wait_for_records("t", 1)


async def test_delay_waits_and_actions_work_together(with_topic: EmbeddedCluster) -> None:
    with_topic.on(ApiKey.PRODUCE, delay(0.1), fail(ErrorCode.REQUEST_TIMED_OUT))
    async with RawClient(with_topic.bootstrap_servers) as client:
        started = time.monotonic()
        assert (await client.produce("t", BATCH)).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert time.monotonic() - started >= 0.09


async def test_rules_follow_one_another_and_can_be_taken_back(with_topic: EmbeddedCluster) -> None:
    with_topic.on(ApiKey.PRODUCE, fail(ErrorCode.REQUEST_TIMED_OUT))
    forever = with_topic.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_ENOUGH_REPLICAS), times=None)
    async with RawClient(with_topic.bootstrap_servers) as client:
        codes = [(await client.produce("t", BATCH)).error_code for _ in range(4)]
        assert codes == [ErrorCode.REQUEST_TIMED_OUT, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3]
        forever.cancel()
        assert (await client.produce("t", BATCH)).error_code == 0
        with_topic.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_ENOUGH_REPLICAS), times=None)
        with_topic.clear_rules()
        assert (await client.produce("t", BATCH)).error_code == 0


async def test_requests_are_remembered(with_topic: EmbeddedCluster) -> None:
    async with RawClient(with_topic.bootstrap_servers) as client:
        await client.produce("t", BATCH)
    assert list(with_topic.requests) == [(ApiKey.PRODUCE, 9, "raw", 1)]


async def test_stop_ends_a_request_that_is_kept_forever() -> None:
    async with asyncio.timeout(5):
        async with EmbeddedCluster() as broker:
            broker.create_topic("t")
            rule = broker.on(ApiKey.PRODUCE, hold(asyncio.Event()))
            async with RawClient(broker.bootstrap_servers) as client:
                client.send(produce_request("t", BATCH), 9)
                await until(lambda: rule.used == 1)
                await broker.stop()
                assert await client.is_closed()


def test_mistakes_in_rules_are_named() -> None:
    broker = EmbeddedCluster()
    with pytest.raises(ConfigError, match="at least one action"):
        broker.on(ApiKey.PRODUCE)
    with pytest.raises(ConfigError, match="times=0"):
        broker.on(ApiKey.PRODUCE, drop_before(), times=0)
    with pytest.raises(ConfigError, match="api_key=55"):
        broker.on(55, drop_before())  # DescribeQuorum
    with pytest.raises(ConfigError, match="nth=0"):
        broker.on(ApiKey.PRODUCE, drop_before(), nth=0)
    with pytest.raises(ConfigError, match="node_id=2"):
        broker.on_every(ApiKey.PRODUCE, drop_before(), node=2)
    with pytest.raises(ConfigError, match="at least 1 byte"):
        split(0)
    with pytest.raises(ConfigError, match="negative"):
        cut_answer(-1)
    with pytest.raises(ConfigError, match="delay"):
        delay(-1)


async def test_throttle_applies_and_asks_for_a_pause(with_topic: EmbeddedCluster) -> None:
    with_topic.on(ApiKey.PRODUCE, throttle(250), times=1)
    data = TopicProduceData("t", partition_data=[PartitionProduceData(0, BATCH)])
    async with RawClient(with_topic.bootstrap_servers) as client:
        answers = [
            await client.call(ProduceRequest(acks=-1, topic_data=[data]), 9) for _ in range(2)
        ]
    assert [answer.throttle_time_ms for answer in answers] == [250, 0]
    assert len(with_topic.records("t")) == 2
    with pytest.raises(ConfigError, match="milliseconds"):
        throttle(-1)


async def test_the_nth_request_and_those_after_it(with_topic: EmbeddedCluster) -> None:
    third = with_topic.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), nth=3, times=2)
    async with RawClient(with_topic.bootstrap_servers) as client:
        codes = [(await client.produce("t", BATCH)).error_code for _ in range(6)]
    assert codes == [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0]
    assert third.used == 2


async def test_every_nth_request(with_topic: EmbeddedCluster) -> None:
    rule = with_topic.on_every(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), nth=2)
    async with RawClient(with_topic.bootstrap_servers) as client:
        codes = [(await client.produce("t", BATCH)).error_code for _ in range(6)]
        assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
        rule.cancel()
        assert [(await client.produce("t", BATCH)).error_code for _ in range(2)] == [0, 0]


async def test_all_rules_count_a_request_and_the_first_that_is_due_acts(
    with_topic: EmbeddedCluster,
) -> None:
    with_topic.on(ApiKey.PRODUCE, fail(ErrorCode.REQUEST_TIMED_OUT))
    with_topic.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_ENOUGH_REPLICAS), nth=3)
    async with RawClient(with_topic.bootstrap_servers) as client:
        codes = [(await client.produce("t", BATCH)).error_code for _ in range(4)]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, 0, ErrorCode.NOT_ENOUGH_REPLICAS, 0]


async def test_what_is_kept_without_an_event_is_released_by_its_rule(
    with_topic: EmbeddedCluster,
) -> None:
    kept_back = with_topic.on(ApiKey.PRODUCE, hold(), times=2)
    async with (
        RawClient(with_topic.bootstrap_servers) as one,
        RawClient(with_topic.bootstrap_servers) as other,
    ):
        waiting = [asyncio.create_task(client.produce("t", BATCH)) for client in (one, other)]
        await kept_back.wait(2)
        assert with_topic.records("t") == []
        kept_back.release()
        assert sorted([(await each).base_offset for each in waiting]) == [0, 1]


async def test_an_answer_that_is_kept_without_an_event_is_released_by_its_rule(
    with_topic: EmbeddedCluster,
) -> None:
    kept_back = with_topic.on(ApiKey.PRODUCE, hold_answer())
    async with RawClient(with_topic.bootstrap_servers) as client:
        waiting = asyncio.create_task(client.produce("t", BATCH))
        await with_topic.wait_for_records("t", 1)
        assert not waiting.done()
        kept_back.release()
        assert (await waiting).base_offset == 0


async def test_waiting_for_a_rule_that_nothing_uses_ends(with_topic: EmbeddedCluster) -> None:
    rule = with_topic.on(ApiKey.PRODUCE, drop_before())
    with pytest.raises(KafkaTimeoutError, match=r"acted on 0 of 1 requests after 0\.01 s"):
        await rule.wait(timeout_seconds=0.01)


@pytest.mark.parametrize("piece_bytes", [1, 7])
async def test_split_sends_the_answer_in_small_pieces(
    with_topic: EmbeddedCluster, piece_bytes: int
) -> None:
    whole: list[bytes] = []
    with_topic.on(ApiKey.PRODUCE, split(piece_bytes))
    async with RawClient(with_topic.bootstrap_servers) as client:
        client.send(produce_request("t", BATCH), 9)
        async with asyncio.timeout(10):
            while len(b"".join(whole)) < 4 or len(b"".join(whole)) < 4 + int.from_bytes(
                b"".join(whole)[:4], "big"
            ):
                whole.append(await client.reader.read(100))
        assert all(len(piece) <= piece_bytes for piece in whole), (
            "the client reads as fast as the broker sends"
        )
        assert len(whole) > 5
        client.send(produce_request("t", BATCH), 9)
        assert (await client.receive(ProduceRequest, 9))[1].responses[0].partition_responses[
            0
        ].base_offset == 1


@pytest.mark.parametrize("at_byte", [0, 3, 20])
async def test_cut_answer_applies_sends_a_part_and_closes(
    with_topic: EmbeddedCluster, at_byte: int
) -> None:
    with_topic.on(ApiKey.PRODUCE, cut_answer(at_byte), split(2))
    async with RawClient(with_topic.bootstrap_servers) as client:
        client.send(produce_request("t", BATCH), 9)
        async with asyncio.timeout(10):
            assert len(await client.reader.read()) == at_byte
    assert len(with_topic.records("t")) == 1


async def test_waiting_for_requests(with_topic: EmbeddedCluster) -> None:
    assert with_topic.request_count(ApiKey.PRODUCE) == 0
    async with RawClient(with_topic.bootstrap_servers) as client:
        waiting = asyncio.create_task(with_topic.wait_for_request(ApiKey.PRODUCE, 2))
        await client.produce("t", BATCH)
        assert not waiting.done()
        client.send(produce_request("t", BATCH), 9)
        await waiting
        await with_topic.wait_for_request(ApiKey.PRODUCE, node=1)  # has been already
        await client.receive_frame()
    assert with_topic.request_count(ApiKey.PRODUCE, node=1) == 2
    with pytest.raises(KafkaTimeoutError, match=r"2 of 3 requests PRODUCE at node 1 after 0\.01 s"):
        await with_topic.wait_for_request(ApiKey.PRODUCE, 3, node=1, timeout_seconds=0.01)


def test_rules_work_from_another_thread(threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("t")
    kept_back = threaded_broker.on(ApiKey.PRODUCE, hold())
    every = threaded_broker.on_every(ApiKey.METADATA, delay(0.0))

    async def produce() -> int:
        async with RawClient(threaded_broker.bootstrap_servers) as client:
            await client.call(MetadataRequest(topics=[]), 9)
            waiting = asyncio.create_task(client.produce("t", BATCH))
            await asyncio.to_thread(kept_back.wait)
            await asyncio.to_thread(threaded_broker.wait_for_request, ApiKey.PRODUCE)
            await asyncio.to_thread(kept_back.release)
            return (await waiting).base_offset

    assert asyncio.run(produce()) == 0
    assert (kept_back.used, every.used) == (1, 1)
    assert threaded_broker.request_count(ApiKey.PRODUCE) == 1
    every.cancel()
    threaded_broker.clear_rules()
