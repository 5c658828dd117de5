"""Clients push metrics to brokers that ask for them (KIP-714)."""

from __future__ import annotations

import asyncio
import gc
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest

from aioprod import (
    Admin,
    AdminClosedError,
    ConfigError,
    Consumer,
    ConsumerStateError,
    KafkaError,
    KafkaTimeoutError,
    Producer,
    ProducerClosedError,
    ShareConsumer,
    UnsupportedVersionError,
)
from aioprod.cluster import telemetry_push
from aioprod.cluster.telemetry import LAST_PUSH_MS
from aioprod.cluster.telemetry_plan import PERSISTENT
from aioprod.error_codes import ErrorCode
from aioprod.metrics.producer import IDLE_S
from aioprod.protocol.otlp import MetricsEncoder, Point
from aioprod.testing import (
    ApiKey,
    EmbeddedCluster,
    MetricsPush,
    change_answer,
    delay,
    drop_after,
    drop_before,
    fail,
    hold,
)

pytestmark = pytest.mark.virtual_time

INTERVAL_MS = 10_000
INTERVAL_S = INTERVAL_MS / 1000
SENT = "org.apache.kafka.producer.record.send.total"
READ = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedCluster]:
    """A broker that takes metrics, and asks for all of them."""
    async with EmbeddedCluster(client_metrics=True) as running:
        running.subscribe_to_metrics(push_interval_ms=INTERVAL_MS)
        yield running


def total(pushes: list[MetricsPush], name: str) -> float:
    return sum(push.value(name) for push in pushes)


def pushes_of(broker: EmbeddedCluster, client_id: str) -> list[MetricsPush]:
    return [push for push in broker.metrics_pushes if push.client_id == client_id]


def telemetry_tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if "telemetry" in task.get_name()]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.message
        for record in caplog.records
        if record.name == "aioprod.cluster.telemetry_push" and record.levelno >= logging.INFO
    ]


# -- whether -----------------------------------------------------------------------------------


async def test_brokers_that_do_not_ask_are_not_asked() -> None:
    async with EmbeddedCluster() as broker:
        async with (
            Producer(broker.bootstrap_servers) as producer,
            Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer,
        ):
            await producer.send_and_wait("t", b"v")
            assert telemetry_tasks() == []
            for client in (producer, consumer):
                with pytest.raises(UnsupportedVersionError, match="ClientTelemetry"):
                    await client.client_instance_id()
            assert telemetry_tasks() == []
        assert broker.request_count(GET) == 0
        with pytest.raises(ConfigError, match="client_metrics=False"):
            broker.subscribe_to_metrics()


async def test_clients_may_refuse(broker: EmbeddedCluster) -> None:
    servers = broker.bootstrap_servers
    async with (
        Producer(servers, enable_metrics_push=False) as producer,
        Consumer("t", bootstrap_servers=servers, enable_metrics_push=False) as consumer,
        Admin(servers) as admin,
    ):
        await producer.send_and_wait("t", b"v")
        await consumer.getmany(timeout_ms=1_000)
        for client in (producer, consumer, admin):
            with pytest.raises(ConfigError, match=r"enable_metrics_push=False"):
                await client.client_instance_id()
        assert telemetry_tasks() == []
    assert broker.request_count(GET) == 0


async def test_a_setting_of_java_turns_it_off() -> None:
    made = Producer.from_config({"enable.metrics.push": "false"})
    assert made.config.enable_metrics_push is False


async def test_a_broker_that_begins_to_ask_is_noticed() -> None:
    """Brokers announce the APIs after an upgrade: the next connection shows."""
    async with EmbeddedCluster(nodes=2, client_metrics=True) as broker:
        broker._store.telemetry.is_announced = False
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"v")
            broker._store.telemetry.is_announced = True
            broker.subscribe_to_metrics(push_interval_ms=INTERVAL_MS)
            for node in broker.node_ids:
                await broker.kill_node(node)
                await broker.start_node(node)
            await producer.send_and_wait("t", b"v")
            await broker.wait_for_request(GET)


# -- what and when -----------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [True, False])
async def test_the_counts_are_those_of_the_traffic(broker: EmbeddedCluster, delta: bool) -> None:
    broker.subscribe_to_metrics(push_interval_ms=INTERVAL_MS, delta=delta)
    servers = broker.bootstrap_servers
    async with (
        Producer(servers, client_id="p") as producer,
        Consumer(
            "t", bootstrap_servers=servers, client_id="c", auto_offset_reset="earliest"
        ) as consumer,
    ):
        for count in (500, 0, 700):
            await producer.send_many("t", [b"v"] * count)
            await producer.flush()
            await asyncio.sleep(2 * INTERVAL_S)
        got = 0
        async for _ in consumer:
            got += 1
            if got == 777:
                break
    sent, read = pushes_of(broker, "p"), pushes_of(broker, "c")
    assert len(sent) > 4
    if delta:
        assert total(sent, SENT) == 1_200
        assert total(read, READ) == 777
    else:
        assert sent[0].value(SENT) == 500
        assert sent[-1].value(SENT) == 1_200
        assert read[-1].value(READ) == 777
    for pushes in (sent, read):
        sums = [[each for each in push.metrics if each.is_sum] for push in pushes]
        assert all(each.is_delta is delta for each in sums[0])
        begins = [of_push[0].start_ns for of_push in sums]
        ends = [of_push[0].time_ns for of_push in sums]
        assert begins[1:] == (ends[:-1] if delta else [begins[0]] * (len(sums) - 1))


async def test_pushes_come_at_the_interval_and_one_at_the_end(broker: EmbeddedCluster) -> None:
    started = asyncio.get_running_loop().time()
    times: list[float] = []

    class Noted(list[MetricsPush]):
        def append(self, push: MetricsPush) -> None:
            times.append(asyncio.get_running_loop().time() - started)
            super().append(push)

    kept = broker._store.telemetry.pushes = Noted()  # type: ignore[assignment]
    async with Producer(broker.bootstrap_servers):
        await asyncio.sleep(5.75 * INTERVAL_S)
        before = len(kept)
    assert 0.5 * INTERVAL_S <= times[0] <= 1.5 * INTERVAL_S + 0.1
    assert all(
        INTERVAL_S <= after - earlier <= INTERVAL_S + 0.1
        for earlier, after in pairwise(times[:before])
    )
    assert before in (5, 6)
    assert [push.terminating for push in kept] == [False] * before + [True]
    assert times[-1] < 5.75 * INTERVAL_S + 0.5


async def test_clients_that_start_together_do_not_push_together(broker: EmbeddedCluster) -> None:
    clients = [Producer(broker.bootstrap_servers, client_id=str(number)) for number in range(20)]
    await asyncio.gather(*(client.start() for client in clients))
    await asyncio.sleep(0.99 * INTERVAL_S)
    assert 3 <= len(broker.metrics_pushes) <= 17
    await asyncio.gather(*(client.close() for client in clients))


async def test_only_what_is_asked_for_is_pushed(broker: EmbeddedCluster) -> None:
    broker.subscribe_to_metrics(
        ["org.apache.kafka.producer.topic.byte", SENT], push_interval_ms=INTERVAL_MS
    )
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(2 * INTERVAL_S)
    (names,) = {frozenset(metric.name for metric in push.metrics) for push in broker.metrics_pushes}
    topic = "org.apache.kafka.producer.topic.byte"
    assert names == {SENT, f"{topic}.rate", f"{topic}.total"}


async def test_a_client_that_is_asked_for_nothing_pushes_nothing(broker: EmbeddedCluster) -> None:
    broker.subscribe_to_metrics([], push_interval_ms=INTERVAL_MS)
    async with Producer(broker.bootstrap_servers) as producer:
        known = await producer.client_instance_id()
        await asyncio.sleep(3.5 * INTERVAL_S)
        assert broker.request_count(GET) == 4  # it asks again at the interval
        broker.subscribe_to_metrics(push_interval_ms=INTERVAL_MS)
        await asyncio.sleep(3 * INTERVAL_S)
        assert broker.metrics_pushes
    assert {push.client_instance_id for push in broker.metrics_pushes} == {known}


async def test_a_changed_subscription_is_followed(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        await asyncio.sleep(2 * INTERVAL_S)
        broker.subscribe_to_metrics([SENT], push_interval_ms=INTERVAL_MS // 2)
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(3 * INTERVAL_S)
    assert len(broker.metrics_pushes[0].metrics) > 20
    assert {metric.name for metric in broker.metrics_pushes[-1].metrics} == {SENT}
    assert total(list(broker.metrics_pushes), SENT) == 1
    assert len({push.client_instance_id for push in broker.metrics_pushes}) == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_the_accepted_codec_is_used(broker: EmbeddedCluster, codec: str) -> None:
    broker.subscribe_to_metrics(push_interval_ms=INTERVAL_MS, compression_types=[codec])
    async with Producer(broker.bootstrap_servers):
        await asyncio.sleep(2 * INTERVAL_S)
    assert {push.compression for push in broker.metrics_pushes} == {codec}


async def test_the_labels_name_the_client(broker: EmbeddedCluster) -> None:
    servers = broker.bootstrap_servers
    async with (
        Producer(servers, client_id="p", transactional_id="tx"),
        Consumer(
            "t",
            bootstrap_servers=servers,
            client_id="c",
            group_id="g",
            group_instance_id="one",
            client_rack="here",
        ) as consumer,
    ):
        await consumer.getmany(timeout_ms=3 * INTERVAL_MS)
        member = consumer.group_metadata().member_id
    assert pushes_of(broker, "p")[-1].labels == {"transactional_id": "tx"}
    assert member
    assert pushes_of(broker, "c")[-1].labels == {
        "client_rack": "here",
        "group_id": "g",
        "group_instance_id": "one",
        "group_member_id": member,
    }


async def test_a_share_consumer_pushes_its_metrics_and_labels(broker: EmbeddedCluster) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("t")
    async with ShareConsumer(
        servers, client_id="s", group_id="g", topics=["t"], client_rack="here"
    ) as consumer:
        assert (await consumer.client_instance_id()).int
        await consumer.getmany(timeout_ms=3 * INTERVAL_MS)
        fetches = consumer.metrics()["fetch-total"]
        (member,) = broker.group("g").members
    pushes = pushes_of(broker, "s")
    assert pushes[-1].labels == {
        "client_rack": "here",
        "group_id": "g",
        "group_member_id": member,
    }
    assert total(pushes, "org.apache.kafka.consumer.share.fetch.manager.fetch.total") >= fetches > 0


async def test_the_last_push_names_the_member_that_has_left(broker: EmbeddedCluster) -> None:
    async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        await consumer.getmany(timeout_ms=1_000)
        member = consumer.group_metadata().member_id
    (last,) = broker.metrics_pushes
    assert last.terminating and member
    assert last.labels == {"group_id": "g", "group_member_id": member}


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_a_push_is_not_larger_than_the_broker_allows(
    broker: EmbeddedCluster, codec: str
) -> None:
    limit = 4_500 if codec == "none" else 1_500
    broker.subscribe_to_metrics(
        push_interval_ms=INTERVAL_MS, max_bytes=limit, compression_types=[codec]
    )
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(300):
            await producer.send(f"topic-{number}-{uuid.uuid4()}", b"v")
        await producer.flush()
        await asyncio.sleep(3 * INTERVAL_S)
    pushes = list(broker.metrics_pushes)
    assert pushes and all(limit / 4 < push.size_bytes <= limit for push in pushes)
    assert total(pushes, SENT) == 300  # what matters most comes first


async def test_what_was_left_out_is_pushed_when_the_broker_allows_it(
    broker: EmbeddedCluster,
) -> None:
    broker.subscribe_to_metrics(push_interval_ms=INTERVAL_MS, max_bytes=1_500)
    async with Producer(broker.bootstrap_servers) as producer:
        topics = [f"topic-{number}-{uuid.uuid4()}" for number in range(300)]
        for topic in topics:
            await producer.send(topic, b"v")
        await producer.flush()
        await asyncio.sleep(3 * INTERVAL_S)
        assert sum(len(push.metrics) for push in broker.metrics_pushes) < 1_000
        broker.subscribe_to_metrics(push_interval_ms=INTERVAL_MS)
        await asyncio.sleep(3 * INTERVAL_S)
    name = "org.apache.kafka.producer.topic.record.send.total"
    counts: Counter[str] = Counter()
    for push in broker.metrics_pushes:
        for metric in push.metrics:
            if metric.name == name:
                counts[metric.labels["topic"]] += int(metric.value)
    assert counts == Counter(topics)


async def test_topics_that_are_not_used_any_more_are_forgotten(broker: EmbeddedCluster) -> None:
    interval_s = IDLE_S / 4
    broker.subscribe_to_metrics(push_interval_ms=int(interval_s * 1000))
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(100):
            await producer.send(f"topic-{number}", b"v")
        await producer.flush()
        await asyncio.sleep(2 * interval_s)
        push = producer._core.runtime.telemetry._push
        assert push is not None
        known = push._ledger._known
        assert len(known) > 400
        await asyncio.sleep(IDLE_S + 2 * interval_s)
        await producer.send_and_wait("another", b"v")
        await asyncio.sleep(2 * interval_s)
        assert len(push._ledger._known) < 50


# -- trouble -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        fail(ErrorCode.REQUEST_TIMED_OUT),
        fail(ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        fail(ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        fail(ErrorCode.TELEMETRY_TOO_LARGE),
        fail(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        drop_before(),
    ],
    ids=["retriable", "unknown", "throttled", "too large", "codec", "lost connection"],
)
async def test_what_a_broker_did_not_take_is_in_the_next_push(
    broker: EmbeddedCluster, trouble: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broker.on(PUSH, trouble)
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(2 * INTERVAL_S)
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(3 * INTERVAL_S)
    assert total(list(broker.metrics_pushes), SENT) == 2
    assert messages(caplog) == []


async def test_a_push_without_an_answer_is_repeated_from_the_same_start(
    broker: EmbeddedCluster,
) -> None:
    broker.on(PUSH, drop_after())
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(3 * INTERVAL_S)
    lost, repeated, *later = broker.metrics_pushes
    for push in (lost, repeated):
        assert push.value(SENT) == 1
    assert [each.start_ns for each in lost.metrics if each.name == SENT] == [
        each.start_ns for each in repeated.metrics if each.name == SENT
    ]
    assert total(later, SENT) == 0


async def test_a_problem_that_persists_is_logged_once(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rule = broker.on_every(PUSH, fail(ErrorCode.REQUEST_TIMED_OUT))
    async with Producer(broker.bootstrap_servers, client_id="p") as producer:
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(10 * INTERVAL_S)
        assert rule.used > 2 * PERSISTENT
        (said,) = messages(caplog)
        assert "p: metrics can't be pushed to brokers: PushTelemetry: REQUEST_TIMED_OUT" in said
        rule.cancel()
        await asyncio.sleep(2 * INTERVAL_S)
    assert messages(caplog)[1:] == ["p: metrics are pushed to brokers again"]
    assert total(list(broker.metrics_pushes), SENT) == 1


@pytest.mark.parametrize("api", [GET, PUSH])
@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_REQUEST])
async def test_an_error_that_would_come_again_ends_the_pushes(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture, api: ApiKey, code: ErrorCode
) -> None:
    rule = broker.on_every(api, fail(code))
    async with Producer(broker.bootstrap_servers) as producer:
        await asyncio.sleep(5 * INTERVAL_S)
        assert rule.used == 1
        assert telemetry_tasks() == []
        await producer.send_and_wait("t", b"v")
        if api is GET:
            with pytest.raises(KafkaError, match=code.name):
                await producer.client_instance_id()
    assert rule.used == 1
    (said,) = messages(caplog)
    assert "no longer pushed to brokers" in said and code.name in said


async def test_another_broker_gets_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster(nodes=3, client_metrics=True) as broker:
        broker.subscribe_to_metrics(push_interval_ms=INTERVAL_MS)
        async with Producer(broker.bootstrap_servers) as producer:
            known = await producer.client_instance_id()
            for _ in range(3):
                await asyncio.sleep(2 * INTERVAL_S)
                used = broker.metrics_pushes[-1].node_id
                await broker.kill_node(used)
                await asyncio.sleep(2 * INTERVAL_S)
                assert broker.metrics_pushes[-1].node_id != used
                await broker.start_node(used)
        assert {push.client_instance_id for push in broker.metrics_pushes} == {known}
        assert messages(caplog) == []


async def test_a_broker_with_a_temporary_error_is_left_for_another() -> None:
    async with EmbeddedCluster(nodes=2, client_metrics=True) as broker:
        broker.subscribe_to_metrics(push_interval_ms=INTERVAL_MS)
        async with Producer(broker.bootstrap_servers):
            await asyncio.sleep(2 * INTERVAL_S)
            used = broker.metrics_pushes[-1].node_id
            broker.on_every(PUSH, fail(ErrorCode.REQUEST_TIMED_OUT), node=used)
            await asyncio.sleep(2 * INTERVAL_S)
            assert broker.metrics_pushes[-1].node_id != used


async def test_a_silent_broker_is_left_for_another() -> None:
    async with EmbeddedCluster(nodes=2, client_metrics=True) as broker:
        broker.subscribe_to_metrics(push_interval_ms=INTERVAL_MS)
        async with Producer(broker.bootstrap_servers, client_id="p") as producer:
            broker.create_topic("t", 2)
            for partition in range(2):
                await producer.send_and_wait("t", b"v", partition=partition)
            await asyncio.sleep(3 * INTERVAL_S)
            used = broker.metrics_pushes[-1].node_id
            before = len(broker.metrics_pushes)
            broker.freeze_node(used)
            led = next(number for number in range(2) if broker.leader("t", number) == used)
            delivery = await producer.send("t", b"v", partition=led)
            await asyncio.sleep(1.5 * INTERVAL_S)
            assert before < len(broker.metrics_pushes)
            assert broker.metrics_pushes[-1].node_id != used
            broker.unfreeze_node(used)
            await delivery


async def test_other_tasks_run_while_many_metrics_are_encoded(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    seen: list[int] = []
    real = MetricsEncoder.add

    async def count_turns() -> None:
        nonlocal turns
        for turns in range(1, 100):  # noqa: B007
            await asyncio.sleep(0)

    def add(encoder: MetricsEncoder, point: Point) -> None:
        if not seen:
            counting.append(asyncio.create_task(count_turns()))
        seen.append(turns)
        real(encoder, point)

    counting: list[asyncio.Task[None]] = []
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(200):
            await producer.send(f"topic-{number}", b"v")
        await producer.flush()
        monkeypatch.setattr(MetricsEncoder, "add", add)
        await broker.wait_for_request(PUSH, broker.request_count(PUSH) + 1, timeout_seconds=60)
        at_once = Counter(seen).values()
    await asyncio.gather(*counting)
    assert sum(at_once) > 1_500
    assert max(at_once) <= 200


# -- close -------------------------------------------------------------------------------------

Made = Callable[[str], Any]
CLIENTS: dict[str, Made] = {
    "producer": lambda servers: Producer(servers),
    "consumer": lambda servers: Consumer("t", bootstrap_servers=servers, group_id="g"),
    "share consumer": lambda servers: ShareConsumer(servers, group_id="g", topics=["t"]),
    "admin": lambda servers: Admin(servers, enable_metrics_push=True),
}


@pytest.mark.parametrize("made", CLIENTS.values(), ids=CLIENTS)
async def test_a_last_push_without_an_answer_delays_close_by_its_limit_only(
    broker: EmbeddedCluster, made: Made
) -> None:
    loop = asyncio.get_running_loop()
    broker.on_every(PUSH, hold(asyncio.Event()))
    client = made(broker.bootstrap_servers)
    await client.start()
    await client.client_instance_id()
    started = loop.time()
    await client.close()
    assert LAST_PUSH_MS / 1000 <= loop.time() - started < LAST_PUSH_MS / 1000 + 0.1
    assert telemetry_tasks() == []


async def test_close_without_time_sends_no_last_push(broker: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    producer = Producer(broker.bootstrap_servers)
    await producer.start()
    await producer.client_instance_id()
    started = loop.time()
    await producer.close(timeout_ms=0)
    assert loop.time() - started < 0.1
    assert broker.request_count(PUSH) == 0


async def test_close_waits_for_the_push_in_flight_so_that_nothing_counts_twice(
    broker: EmbeddedCluster,
) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"v")
        await producer.client_instance_id()
        broker.on(PUSH, delay(0.3))
        await broker.wait_for_request(PUSH, 1, timeout_seconds=60)
    assert [push.terminating for push in broker.metrics_pushes] == [False, True]
    assert total(list(broker.metrics_pushes), SENT) == 1


async def test_a_push_that_is_encoded_when_the_client_closes_is_not_its_last(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers refuse all pushes after the last one."""
    monkeypatch.setattr(telemetry_push, "_PORTION", 1)
    producer = Producer(broker.bootstrap_servers)
    await producer.start()
    await producer.client_instance_id()
    encoding = asyncio.Event()
    real = MetricsEncoder.add

    def add(encoder: MetricsEncoder, point: Point) -> None:
        encoding.set()
        real(encoder, point)

    monkeypatch.setattr(MetricsEncoder, "add", add)
    await encoding.wait()
    await producer.close()
    assert [push.terminating for push in broker.metrics_pushes] == [False, True]
    assert messages(caplog) == []


async def test_a_clock_that_is_set_back_gives_no_negative_time(
    broker: EmbeddedCluster,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.client_instance_id()
            patch.setattr("time.time_ns", lambda: 5)
            await asyncio.sleep(2 * INTERVAL_S)
    assert {
        (metric.start_ns, metric.time_ns)
        for push in broker.metrics_pushes
        for metric in push.metrics
        if metric.is_sum
    } == {(5, 5)}


@pytest.mark.parametrize("step", range(6))
async def test_a_cancelled_close_leaves_no_task(broker: EmbeddedCluster, step: int) -> None:
    broker.on_every(PUSH, delay(0.1))
    producer = Producer(broker.bootstrap_servers)
    await producer.start()
    await producer.client_instance_id()
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(step * 0.02)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await producer.close()
    assert telemetry_tasks() == []


async def test_a_client_that_is_dropped_ends_its_task(broker: EmbeddedCluster) -> None:
    producer = Producer(broker.bootstrap_servers)
    await producer.start()
    await producer.client_instance_id()
    assert telemetry_tasks() == ["aioprod-telemetry"]
    with pytest.warns(ResourceWarning, match="unclosed"):
        del producer
        gc.collect()
    await asyncio.sleep(1)
    assert telemetry_tasks() == []


async def test_a_task_that_is_cancelled_from_outside_does_no_harm(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        (task,) = (each for each in asyncio.all_tasks() if each.get_name() == "aioprod-telemetry")
        task.cancel()
        await asyncio.sleep(0)
        await producer.send_and_wait("t", b"v")
        with pytest.raises(KafkaError, match="telemetry task has ended"):
            await producer.client_instance_id()


# -- the instance id ---------------------------------------------------------------------------


@pytest.mark.parametrize("made", CLIENTS.values(), ids=CLIENTS)
async def test_the_id_is_the_same_for_life_and_from_the_broker(
    broker: EmbeddedCluster, made: Made
) -> None:
    async with made(broker.bootstrap_servers) as client:
        ids = await asyncio.gather(*(client.client_instance_id(1_000) for _ in range(3)))
        await asyncio.sleep(4 * INTERVAL_S)
        ids.append(await client.client_instance_id(0))
    assert len(set(ids)) == 1 and isinstance(ids[0], uuid.UUID) and ids[0].int
    assert {push.client_instance_id for push in broker.metrics_pushes} == set(ids)
    async with made(broker.bootstrap_servers) as another:
        assert await another.client_instance_id() != ids[0]


async def test_the_wait_for_the_id_has_a_limit(broker: EmbeddedCluster) -> None:
    broker.on_every(GET, hold(asyncio.Event()))
    async with Producer(broker.bootstrap_servers, request_timeout_ms=3_000) as producer:
        with pytest.raises(KafkaTimeoutError, match="timeout_ms=0"):
            await producer.client_instance_id(0)
        with pytest.raises(KafkaTimeoutError, match="timeout_ms=500"):
            await producer.client_instance_id(500)
        with pytest.raises(KafkaTimeoutError, match="request_timeout_ms=3000"):
            await producer.client_instance_id()
        for wrong in (-1, float("inf"), "1"):
            with pytest.raises(ConfigError, match="timeout_ms="):
                await producer.client_instance_id(wrong)  # type: ignore[arg-type]


async def test_clients_that_are_not_open_have_no_id(broker: EmbeddedCluster) -> None:
    servers = broker.bootstrap_servers
    producer, consumer = Producer(servers), Consumer("t", bootstrap_servers=servers)
    admin = Admin(servers, enable_metrics_push=True)
    for client, error in (
        (producer, ProducerClosedError),
        (consumer, ConsumerStateError),
        (admin, AdminClosedError),
    ):
        with pytest.raises(error, match="not started"):
            await client.client_instance_id()
    broker.on_every(GET, hold(asyncio.Event()))
    await producer.start()
    waiting = asyncio.create_task(producer.client_instance_id())
    await asyncio.sleep(0.1)
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await waiting


async def test_a_zero_id_is_not_taken(broker: EmbeddedCluster) -> None:
    def nameless(answer: Any) -> None:
        answer.client_instance_id = uuid.UUID(int=0)

    rule = broker.on_every(GET, change_answer(nameless))
    async with Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(KafkaTimeoutError, match="without an instance id"):
            await producer.client_instance_id(1_000)
        rule.cancel()
        await producer.client_instance_id()


# -- next to it ---------------------------------------------------------------------------------


async def test_requests_for_metrics_are_few(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers):
        await asyncio.sleep(20.5 * INTERVAL_S)
    counts = Counter(seen.api_key for seen in broker.requests)
    assert counts[GET] == 1
    assert 20 <= counts[PUSH] <= 22
