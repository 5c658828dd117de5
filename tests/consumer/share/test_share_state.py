"""``ShareConsumer.state``, and that a share consumer that gets nothing says why."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aioprod import (
    AcknowledgeType,
    ConsumerState,
    ConsumerStatus,
    ErrorCode,
    KafkaError,
    ShareConsumer,
    ShareConsumerObserver,
    TopicPartition,
)
from aioprod.metrics import StallChanged
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.share_fetch import PartitionData, ShareFetchableTopicResponse
from aioprod.testing import EmbeddedCluster, change_answer, fail, hold
from tests.consumer.share.share_groups import ShareTopic, take

pytestmark = pytest.mark.virtual_time

EXPLICIT = {"share_acknowledgement_mode": "explicit"}
LIMIT_S = 4.0
WATCHED: dict[str, Any] = {"stall_timeout_ms": int(LIMIT_S * 1000)}
# A stall is seen at the first look after the limit, and looks are a quarter of it apart.
NOTICED_S = LIMIT_S * 1.5
FAILING, READING = ConsumerStatus.FAILING, ConsumerStatus.READING
STALLED, REBALANCING = ConsumerStatus.STALLED, ConsumerStatus.REBALANCING


class Stalls(ShareConsumerObserver):
    def __init__(self) -> None:
        self.seen: list[StallChanged] = []

    def on_stall(self, event: StallChanged) -> None:
        self.seen.append(event)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "aioprod.consumer.stall_watch" and record.levelno == logging.WARNING
    ]


async def ask(consumer: ShareConsumer, seconds: float) -> int:
    """Ask for records for some time, whatever is raised; return how many came."""
    loop = asyncio.get_running_loop()
    until, found = loop.time() + seconds, 0
    while loop.time() < until:
        try:
            found += len(await consumer.getmany(timeout_ms=(until - loop.time()) * 1000))
        except KafkaError:
            await asyncio.sleep(0.1)
    return found


async def states_while(consumer: ShareConsumer, seconds: float) -> set[ConsumerStatus]:
    """The states while the application asks for records."""
    asking = asyncio.create_task(ask(consumer, seconds))
    seen = set()
    while not asking.done():
        seen.add(consumer.state.status)
        await asyncio.sleep(0.0007)
    await asking
    return seen


@pytest.fixture
async def topic(broker: EmbeddedCluster) -> ShareTopic:
    topic = ShareTopic(broker.bootstrap_servers)
    await topic.create()
    await topic.write(range(3))
    return topic


def refused(broker: EmbeddedCluster, topic: ShareTopic, code: ErrorCode) -> Any:
    """An action that refuses to fetch the partition, which a broker does even without records."""

    def change(response: Any) -> None:
        topic_id = broker.topics[topic.topic].topic_id
        partition = PartitionData(0, error_code=int(code))
        response.responses = [ShareFetchableTopicResponse(topic_id, [partition])]

    return change_answer(change)


def refuse_acknowledgements(response: Any) -> None:
    for of_topic in response.responses:
        for partition in of_topic.partitions:
            partition.error_code = int(ErrorCode.INVALID_RECORD_STATE)


async def test_the_states_from_start_to_end(topic: ShareTopic) -> None:
    consumer = topic.consumer()
    assert consumer.state.status is ConsumerStatus.STOPPED
    async with consumer:
        assert consumer.state.status is REBALANCING
        await take(consumer, 3)
        assert consumer.state == ConsumerState(READING, consumer.state.since)
        await consumer.unsubscribe()
        assert consumer.state.status is READING
        consumer.subscribe([topic.topic])
        assert consumer.state.status is REBALANCING
    assert consumer.state.status is ConsumerStatus.STOPPED


async def test_waiting_for_new_records_is_not_a_stall(
    topic: ShareTopic, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic.consumer(**WATCHED) as consumer:
        await take(consumer, 3)
        assert await states_while(consumer, 5 * LIMIT_S) == {READING}
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("api", "action"),
    [
        (ApiKey.FIND_COORDINATOR, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        (ApiKey.SHARE_GROUP_HEARTBEAT, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
        (ApiKey.SHARE_GROUP_HEARTBEAT, fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)),
    ],
    ids=["find", "heartbeat", "refused"],
)
async def test_a_group_that_cannot_be_joined(
    broker: EmbeddedCluster,
    topic: ShareTopic,
    caplog: pytest.LogCaptureFixture,
    api: ApiKey,
    action: Any,
) -> None:
    rule = broker.on_every(api, action)
    stalls = Stalls()
    async with topic.consumer(**WATCHED, observers=[stalls]) as consumer:
        await ask(consumer, 0.5)
        assert await states_while(consumer, NOTICED_S) <= {FAILING, REBALANCING}
        (line,) = warnings(caplog)
        assert line.partition(": ")[2].startswith(
            "for 4 s no partitions: the group can't be reached: BrokerError"
        )
        assert consumer.state.error is not None
        rule.cancel()
        assert await ask(consumer, LIMIT_S) == 3
        assert consumer.state.status is READING
    assert [(each.partition, each.is_over) for each in stalls.seen] == [(None, False), (None, True)]


async def test_a_coordinator_that_is_silent(
    broker: EmbeddedCluster, topic: ShareTopic, caplog: pytest.LogCaptureFixture
) -> None:
    rule = broker.on_every(ApiKey.SHARE_GROUP_HEARTBEAT, hold())
    async with topic.consumer(**WATCHED, request_timeout_ms=60_000) as consumer:
        await ask(consumer, NOTICED_S)
        assert consumer.state.status is STALLED
        assert "the coordinator has not answered yet" in str(consumer.state.error)
        rule.cancel()
        rule.release()
        await take(consumer, 3)


async def test_a_member_that_never_asks_for_records(
    topic: ShareTopic, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic.consumer(**WATCHED) as consumer:
        await asyncio.sleep(NOTICED_S)
        assert consumer.state.status is STALLED
        (line,) = warnings(caplog)
        assert "no call asks for records, which joins the group" in line


@pytest.mark.parametrize(
    ("of_session", "code"),
    [
        (True, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (True, ErrorCode.SHARE_SESSION_LIMIT_REACHED),
        (False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (False, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
async def test_fetches_that_fail(
    broker: EmbeddedCluster,
    topic: ShareTopic,
    caplog: pytest.LogCaptureFixture,
    of_session: bool,
    code: ErrorCode,
) -> None:
    """The state is ``failing``, without a break, and the log names the error once. When it is
    solved, the state reports that although there are no further records.
    """
    stalls = Stalls()
    async with topic.consumer(**WATCHED, observers=[stalls]) as consumer:
        await take(consumer, 3)
        action = fail(code) if of_session else refused(broker, topic, code)
        rule = broker.on_every(ApiKey.SHARE_FETCH, action)
        await ask(consumer, 1)
        assert await states_while(consumer, NOTICED_S) == {FAILING}
        (line,) = warnings(caplog)
        assert f"{topic.topic}-0 is not read: BrokerError" in line
        assert consumer.metrics()["stalled-partitions"] == 1
        measured = consumer.metrics_by_partition()[TopicPartition(topic.topic, 0)]
        assert measured["stalled"] == 1
        await ask(consumer, 5 * LIMIT_S)
        assert len(warnings(caplog)) == 1
        rule.cancel()
        await ask(consumer, LIMIT_S)
        assert consumer.state.status is READING
        assert consumer.metrics()["stalled-partitions"] == 0
    assert [each.is_over for each in stalls.seen] == [False, True]


async def test_a_broker_that_leads_nothing_any_more_causes_no_problem() -> None:
    async with EmbeddedCluster(nodes=2) as cluster:
        topic = ShareTopic(cluster.bootstrap_servers)
        await topic.create()
        await topic.write(range(3))
        cluster.move_leader(topic.topic, 0, 2)
        async with topic.consumer(**WATCHED) as consumer:
            await take(consumer, 3)
            reading = asyncio.create_task(states_while(consumer, 30))
            await asyncio.sleep(0.1)
            await cluster.kill_node(2)
            assert FAILING in await reading
            await topic.write([3])
            assert await ask(consumer, 2) == 1
            assert consumer.state.status is READING


async def test_a_partition_without_a_leader(caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster(nodes=2) as cluster:
        topic = ShareTopic(cluster.bootstrap_servers)
        await topic.create()
        async with topic.consumer(**WATCHED) as consumer:
            await ask(consumer, 0.5)
            rule = cluster.on_every(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE))
            cluster.move_leader(topic.topic, 0, 3 - cluster.leader(topic.topic, 0))
            await ask(consumer, 1)
            assert await states_while(consumer, NOTICED_S) == {FAILING}
            assert any(f"{topic.topic}-0 is not read: " in line for line in warnings(caplog))
            rule.cancel()
            await topic.write([0])
            assert await ask(consumer, 10) == 1
            assert consumer.state.status is READING


async def test_acknowledgements_that_fail_all_the_time(
    broker: EmbeddedCluster, topic: ShareTopic, caplog: pytest.LogCaptureFixture
) -> None:
    rule = broker.on_every(ApiKey.SHARE_ACKNOWLEDGE, change_answer(refuse_acknowledgements))
    async with topic.consumer(**WATCHED, **EXPLICIT) as consumer:

        async def work() -> None:
            await topic.write([7])
            for record in await consumer.getmany(timeout_ms=100):
                consumer.acknowledge(record)
            await consumer.commit()

        for _ in range(int(2 * NOTICED_S)):
            await work()
            await asyncio.sleep(0.5)
        state = consumer.state
        assert state.status is STALLED
        assert "no acknowledgement is confirmed: BrokerError" in str(state.error)
        assert "INVALID_RECORD_STATE" in warnings(caplog)[0]
        rule.cancel()
        await work()
        await asyncio.sleep(LIMIT_S / 2)
        assert consumer.state.status is READING


async def test_a_single_late_acknowledgement_is_not_a_stall(
    topic: ShareTopic, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic.consumer(**WATCHED, **EXPLICIT) as consumer:
        records = await take(consumer, 3)
        await asyncio.sleep(31)  # longer than their lock
        for record in records:
            consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) != {None}
        for record in await take(consumer, 3):
            consumer.acknowledge(record, AcknowledgeType.REJECT)
        assert await states_while(consumer, 3 * LIMIT_S) == {READING}
    assert warnings(caplog) == []


async def test_records_that_no_call_asks_for(
    topic: ShareTopic, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic.consumer(**WATCHED) as consumer:
        await take(consumer, 1, max_records=1)
        for _ in range(2):
            await asyncio.sleep(LIMIT_S * 0.9)
            assert consumer.state.status is READING
            await take(consumer, 1, max_records=1)
        await topic.write(range(2))
        await take(consumer, 1, max_records=1)
        await asyncio.sleep(NOTICED_S)
        assert consumer.state.status is STALLED
        assert "no call asks for the fetched records (1)" in warnings(caplog)[0]
        await take(consumer, 1)
        await asyncio.sleep(LIMIT_S / 2)
        assert consumer.state.status is READING


async def test_the_watch_can_be_turned_off(
    topic: ShareTopic, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic.consumer(stall_timeout_ms=0) as consumer:
        await take(consumer, 1, max_records=1)
        await asyncio.sleep(100 * LIMIT_S)
        assert consumer.state.status is not STALLED
    assert warnings(caplog) == []


async def test_a_topic_that_is_not_subscribed_any_more_causes_no_problem(topic: ShareTopic) -> None:
    async with topic.consumer(topics=[topic.topic, "missing"]) as consumer:
        await ask(consumer, 1)
        assert consumer.state.status is FAILING
        assert "missing" in str(consumer.state.error)
        consumer.subscribe([topic.topic])
        await ask(consumer, 1)
        assert consumer.state.status is READING
