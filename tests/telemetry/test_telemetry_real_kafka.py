"""Metrics that clients push to a real broker (KIP-714), which gives them to a plugin."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from copy import copy
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from aioprod import Admin, Consumer, Producer, ShareConsumer, UnsupportedVersionError
from aioprod.admin import ConfigResource, NewTopic
from aioprod.cluster.client import ClusterClient
from aioprod.error_codes import ErrorCode
from aioprod.protocol.message import Message
from aioprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from aioprod.protocol.messages.push_telemetry import PushTelemetryRequest
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.testing import EmbeddedCluster
from aioprod.testing.jars import kafka_jars
from aioprod.testing.real_kafka import RealKafka
from tests.telemetry.decoded import Push, decode, sums
from tests.testing.java_client import java_clients
from tests.testing.java_compiler import compile_to_jar
from tests.testing.raw_client import CLIENT_ID, RawClient
from tests.waiting import LIMIT_S, until

pytestmark = pytest.mark.kafka

PLUGIN = Path(__file__).with_name("MetricsToFiles.java")
MessageT = TypeVar("MessageT", bound=Message)
INTERVAL_MS = 200
CONVERSATION_MS = 1_200
PRODUCER, CONSUMER = "org.apache.kafka.producer.", "org.apache.kafka.consumer."


class Receiver(NamedTuple):
    """A broker with the plugin, and the directory that it writes into."""

    servers: str
    directory: Path

    def pushes(self, client_id: str) -> list[Received]:
        """Return what a client has pushed, oldest first."""
        found = (Received.read(path) for path in sorted(self.directory.glob("[0-9]*")))
        return [each for each in found if each.client_id == client_id]

    async def wait_for_pushes(self, client_id: str, count: int) -> None:
        await until(lambda: len(self.pushes(client_id)) >= count)

    def last_names(self, client_id: str) -> set[str]:
        """Return the names in a client's last push."""
        return {each.name for each in self.pushes(client_id)[-1].push.values}


class Received(NamedTuple):
    client_id: str
    instance_id: uuid.UUID
    terminating: bool
    push: Push

    @classmethod
    def read(cls, path: Path) -> Received:
        _, client_id, instance_id, terminating, content_type = path.name.split("~")
        assert content_type == "OTLP"
        return cls(
            client_id,
            uuid.UUID(bytes=base64.urlsafe_b64decode(instance_id + "==")),
            terminating == "true",
            decode(path.read_bytes()),
        )


@pytest.fixture(scope="module", params=["4.4.0", pytest.param("4.1.0", marks=pytest.mark.interop)])
def receiver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Receiver]:
    version: str = request.param
    plugin = compile_to_jar(PLUGIN, kafka_jars(version), tmp_path_factory.mktemp("plugin"))
    directory = tmp_path_factory.mktemp("pushes")
    settings = {
        "metric.reporters": "aioprod.MetricsToFiles",
        "aioprod.metrics.directory": str(directory),
    }
    with RealKafka(version=version, settings=settings, plugins=[plugin]) as kafka:
        yield Receiver(kafka.bootstrap_servers, directory)


@pytest.fixture
async def admin(receiver: Receiver) -> AsyncIterator[Admin]:
    async with Admin(receiver.servers) as made:
        yield made


@contextlib.asynccontextmanager
async def subscription(
    admin: Admin, client_id: str, metrics: str, interval_ms: int = INTERVAL_MS
) -> AsyncIterator[ConfigResource]:
    """Ask the clients with this id for metrics."""
    resource = ConfigResource.client_metrics(f"of-{client_id}")
    wanted = {
        "metrics": metrics,
        "interval.ms": str(interval_ms),
        "match": f"client_id={client_id}",
    }
    (await admin.incremental_alter_configs({resource: wanted})).check()
    # The broker learns of it from the controller; a client that asks before must ask again
    # after five minutes.
    async with ClusterClient(admin.config.bootstrap_servers, client_id=client_id) as client:
        async with asyncio.timeout(LIMIT_S):
            while not (await client.request(GetTelemetrySubscriptionsRequest())).requested_metrics:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    try:
        yield resource
    finally:
        (await admin.incremental_alter_configs({resource: dict.fromkeys(wanted)})).check()


async def test_the_counts_are_those_of_the_traffic(receiver: Receiver, admin: Admin) -> None:
    topic = f"counted-{uuid.uuid4().hex[:8]}"
    (await admin.create_topics([NewTopic(topic, 2)])).check()
    sent, read = f"sends-{topic}", f"reads-{topic}"
    async with contextlib.AsyncExitStack() as stack:
        for client_id in (sent, read):
            await stack.enter_async_context(subscription(admin, client_id, "*"))
        producer = await stack.enter_async_context(Producer(receiver.servers, client_id=sent))
        ids = {sent: await producer.client_instance_id()}
        for number in range(3):
            await producer.send_many(topic, [b"v" * 100] * (400 + number))
            await producer.flush()
            await receiver.wait_for_pushes(sent, number + 1)
        consumer = await stack.enter_async_context(
            Consumer(
                topic,
                bootstrap_servers=receiver.servers,
                group_id=read,
                client_id=read,
                client_rack="here",
                auto_offset_reset="earliest",
            )
        )
        ids[read] = await consumer.client_instance_id()
        got = 0
        async with asyncio.timeout(LIMIT_S):
            async for _ in consumer:
                got += 1
                if got == 1_000:
                    break
        await receiver.wait_for_pushes(read, 2)
        measured = producer.metrics()
    for client_id in (sent, read):
        pushes = receiver.pushes(client_id)
        assert {each.instance_id for each in pushes} == {ids[client_id]}
        assert [each.terminating for each in pushes] == [False] * (len(pushes) - 1) + [True]
    of_producer = sums(each.push for each in receiver.pushes(sent))
    of_topic = frozenset({("topic", topic)})
    assert of_producer[PRODUCER + "record.send.total", frozenset()] == 1_203
    assert of_producer[PRODUCER + "topic.record.send.total", of_topic] == 1_203
    requests = of_producer[PRODUCER + "request.total", frozenset()]
    assert requests == measured["request-total"] > 0
    by_node = frozenset({("node_id", "node-1")})
    assert of_producer[PRODUCER + "node.request.total", by_node] == requests
    of_consumer = sums(each.push for each in receiver.pushes(read))
    name = CONSUMER + "fetch.manager.records.consumed.total"
    assert of_consumer[name, frozenset()] == of_consumer[name, of_topic] == 1_000
    last = receiver.pushes(read)[-1].push
    assert last.labels.pop("group_member_id").startswith(read)
    assert last.labels == {"group_id": read, "client_rack": "here"}
    first = receiver.pushes(read)[0].push
    assert 0 <= first.value(CONSUMER + "poll.idle.ratio.avg") <= 1


async def test_only_metrics_with_the_prefixes_are_pushed(receiver: Receiver, admin: Admin) -> None:
    client_id = f"prefixes-{uuid.uuid4().hex[:8]}"
    wanted = f"{PRODUCER}record.queue.time.,{PRODUCER}connection.creation.total"
    async with subscription(admin, client_id, wanted):
        async with Producer(receiver.servers, client_id=client_id):
            await receiver.wait_for_pushes(client_id, 1)
    names = {each.name for got in receiver.pushes(client_id) for each in got.push.values}
    assert names == {
        f"{PRODUCER}record.queue.time.avg",
        f"{PRODUCER}record.queue.time.max",
        f"{PRODUCER}connection.creation.total",
    }


async def test_a_client_that_no_subscription_matches_pushes_nothing(
    receiver: Receiver, admin: Admin
) -> None:
    quiet, loud = f"quiet-{uuid.uuid4().hex[:8]}", f"loud-{uuid.uuid4().hex[:8]}"
    async with subscription(admin, loud, "*"):
        async with (
            Producer(receiver.servers, client_id=quiet) as one,
            Producer(receiver.servers, client_id=loud) as other,
        ):
            assert await one.client_instance_id() != await other.client_instance_id()
            await receiver.wait_for_pushes(loud, 3)
    assert receiver.pushes(quiet) == []


async def test_a_changed_subscription_is_followed(receiver: Receiver, admin: Admin) -> None:
    client_id = f"changed-{uuid.uuid4().hex[:8]}"
    async with subscription(admin, client_id, f"{PRODUCER}record.") as resource:
        async with Producer(receiver.servers, client_id=client_id):
            await receiver.wait_for_pushes(client_id, 1)
            change = {"metrics": f"{PRODUCER}connection."}
            (await admin.incremental_alter_configs({resource: change})).check()
            await until(lambda: f"{PRODUCER}connection.count" in receiver.last_names(client_id))
    pushes = receiver.pushes(client_id)
    assert len({each.instance_id for each in pushes}) == 1
    assert {each.name for each in pushes[0].push.values} >= {f"{PRODUCER}record.send.total"}
    assert f"{PRODUCER}record.send.total" not in receiver.last_names(client_id)


async def test_an_admin_client_pushes_too_if_it_is_asked_to(
    receiver: Receiver, admin: Admin
) -> None:
    client_id = f"admin-{uuid.uuid4().hex[:8]}"
    async with subscription(admin, client_id, "*"):
        async with Admin(receiver.servers, client_id=client_id, enable_metrics_push=True) as other:
            await other.client_instance_id()
            await receiver.wait_for_pushes(client_id, 1)
    counted = sums(each.push for each in receiver.pushes(client_id))
    opened = counted["org.apache.kafka.admin.client.connection.creation.total", frozenset()]
    assert opened >= 1
    assert receiver.pushes(client_id)[-1].terminating


async def test_names_kinds_and_labels_are_those_of_java(receiver: Receiver, admin: Admin) -> None:
    """Each metric that we push, Java pushes as well, as the same kind and with the same labels."""
    topic = f"named-{uuid.uuid4().hex[:8]}"
    (await admin.create_topics([NewTopic(topic, 1)])).check()
    ids = [f"{who}-{kind}-{topic}" for who in ("ours", "java") for kind in ("sends", "reads")]
    async with contextlib.AsyncExitStack() as stack:
        for client_id in ids:
            await stack.enter_async_context(subscription(admin, client_id, "*"))
        producer = await stack.enter_async_context(Producer(receiver.servers, client_id=ids[0]))
        consumer = await stack.enter_async_context(
            Consumer(
                topic,
                bootstrap_servers=receiver.servers,
                group_id=ids[1],
                client_id=ids[1],
                auto_offset_reset="earliest",
            )
        )
        await producer.send_and_wait(topic, b"v")
        await consumer.getone(timeout_ms=LIMIT_S * 1000)
        await consumer.commit()
        for client_id in ids[:2]:
            await receiver.wait_for_pushes(client_id, len(receiver.pushes(client_id)) + 2)
        await asyncio.to_thread(_java_traffic, receiver, topic, ids[2], ids[3])
    for ours, java in ((ids[0], ids[2]), (ids[1], ids[3])):
        _compare(receiver, ours, java)


@pytest.mark.parametrize("receiver", ["4.4.0"], indirect=True)
async def test_a_share_consumer_has_the_metrics_of_java(receiver: Receiver, admin: Admin) -> None:
    topic = f"shared-{uuid.uuid4().hex[:8]}"
    (await admin.create_topics([NewTopic(topic, 1)])).check()
    ours, java = f"ours-{topic}", f"java-{topic}"
    async with contextlib.AsyncExitStack() as stack:
        for client_id in (ours, java):
            earliest = {"share.auto.offset.reset": "earliest"}
            await admin.incremental_alter_configs({ConfigResource.group(client_id): earliest})
            await stack.enter_async_context(subscription(admin, client_id, "*"))
        producer = await stack.enter_async_context(Producer(receiver.servers))
        await producer.send_and_wait(topic, b"v")
        consumer = await stack.enter_async_context(
            ShareConsumer(receiver.servers, group_id=ours, client_id=ours, topics=[topic])
        )
        assert len(await consumer.getmany(timeout_ms=LIMIT_S * 1000)) == 1
        assert set((await consumer.commit()).values()) == {None}
        await receiver.wait_for_pushes(ours, len(receiver.pushes(ours)) + 2)
        await asyncio.to_thread(_java_shares, receiver, topic, java)
    _compare(receiver, ours, java)
    labels = [receiver.pushes(each)[-1].push.labels.keys() for each in (ours, java)]
    assert labels[0] == labels[1]
    counted = sums(each.push for each in receiver.pushes(ours))
    name = f"{CONSUMER}share.fetch.manager.acknowledgements.send.total"
    assert counted[name, frozenset()] == 1


def _compare(receiver: Receiver, ours: str, java: str) -> None:
    wrong = _shapes(receiver, ours).items() - _shapes(receiver, java).items()
    assert wrong == set()
    assert len(_shapes(receiver, ours)) > 30


def _shapes(receiver: Receiver, client_id: str) -> dict[tuple[str, frozenset[str]], bool]:
    """For each metric and the names of its labels, whether it is a sum."""
    return {
        (each.name, frozenset(name for name, _ in each.labels)): bool(each.temporality)
        for got in receiver.pushes(client_id)
        for each in got.push.values
    }


def _java_traffic(receiver: Receiver, topic: str, sends: str, reads: str) -> None:
    with java_clients() as java:
        servers = receiver.servers
        producer = java.producer(bootstrap_servers=servers, client_id=sends)
        producer.send(java.record(topic, 0, b"v")).get()
        consumer = java.consumer(
            bootstrap_servers=servers,
            group_id=reads,
            client_id=reads,
            auto_offset_reset="earliest",
        )
        topics = java.jvm.java.util.ArrayList()
        topics.add(topic)
        consumer.subscribe(topics)
        for _ in range(20):
            consumer.poll(java.seconds(1))
            consumer.commitSync()
            if len(receiver.pushes(reads)) >= 3 and len(receiver.pushes(sends)) >= 2:
                break
        consumer.close()
        producer.close()


def _java_shares(receiver: Receiver, topic: str, client_id: str) -> None:
    with java_clients() as java:
        consumer = java.share_consumer(
            bootstrap_servers=receiver.servers, group_id=client_id, client_id=client_id
        )
        topics = java.jvm.java.util.ArrayList()
        topics.add(topic)
        consumer.subscribe(topics)
        for _ in range(20):
            consumer.poll(java.seconds(1))
            if len(receiver.pushes(client_id)) >= 3:
                break
        consumer.close()


async def test_the_embedded_broker_answers_as_the_real_one(
    receiver: Receiver, admin: Admin
) -> None:
    async with EmbeddedCluster(client_metrics=True) as embedded:
        embedded.subscribe_to_metrics(push_interval_ms=CONVERSATION_MS)
        async with subscription(admin, CLIENT_ID, "*", CONVERSATION_MS):
            theirs, ours = await asyncio.gather(
                _conversation(receiver.servers), _conversation(embedded.bootstrap_servers)
            )
    assert ours == theirs
    assert {code for code in theirs[1:] if isinstance(code, ErrorCode)} >= {
        ErrorCode.NONE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.TELEMETRY_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUEST,
    }


def replace(message: MessageT, **changes: object) -> MessageT:
    """Return a copy of a message with other values."""
    changed = copy(message)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


async def _conversation(servers: str) -> list[object]:
    """Return what a broker answers to good and bad requests of one client."""
    seen: list[object] = []
    pause = CONVERSATION_MS / 1000 + 0.1
    async with RawClient(servers) as client:
        reported = await client.call(GetTelemetrySubscriptionsRequest(), 0)
        own, asked = reported.client_instance_id, reported.subscription_id
        assert own.int and not reported.error_code
        seen.append(replace(reported, client_instance_id=ZERO_UUID, subscription_id=0))
        good = PushTelemetryRequest(own, asked)

        async def push(request: PushTelemetryRequest) -> None:
            seen.append(ErrorCode.of((await client.call(request, 0)).error_code))

        async def get(known: uuid.UUID) -> None:
            answer = await client.call(GetTelemetrySubscriptionsRequest(known), 0)
            seen.append(ErrorCode.of(answer.error_code))

        await get(own)  # too early
        await push(replace(good, client_instance_id=ZERO_UUID))
        await push(replace(good, subscription_id=asked + 1))
        await push(good)  # too early
        for wrong in (
            replace(good, compression_type=9),
            replace(good, metrics=bytes(reported.telemetry_max_bytes + 1)),
            replace(good, compression_type=1, metrics=b"not gzip"),
            good,
        ):
            await asyncio.sleep(pause)
            await push(wrong)
        await get(own)  # too early
        await push(replace(good, terminating=True))  # never too early
        await push(good)
        await asyncio.sleep(pause)
        await push(good)
        await get(own)
    return seen


async def test_a_broker_without_a_receiver_is_named(kafka: str) -> None:
    async with Producer(kafka) as producer:
        with pytest.raises(UnsupportedVersionError, match="ClientTelemetry receiver"):
            await producer.client_instance_id()
