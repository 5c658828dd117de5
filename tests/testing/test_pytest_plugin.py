"""The plugin's fixtures work in tests of every kind: with pytest-asyncio, with anyio's plugin, and
in tests that block.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any, ClassVar

import pytest

from aioprod import testing
from aioprod.testing import EmbeddedCluster, ThreadedCluster

pytest_plugins = ("pytester",)

IMPORTS = """
import asyncio, pytest
from aioprod import BrokerError, KafkaTimeoutError, ErrorCode, Producer, ProducerRecord
from aioprod import testing
from aioprod.testing import EmbeddedCluster, ThreadedCluster, fail
from aioprod.protocol.api_keys import ApiKey
"""
ON_A_LOOP = """
{mark}
async def test_one_node(kafka_broker, kafka_topic, producer, consumer):
    assert isinstance(kafka_broker, EmbeddedCluster) and kafka_broker.node_ids == (1,)
    place = await producer.send_and_wait(kafka_topic, b"value", b"key", headers=[("h", b"1")])
    record = await consumer.getone()
    assert (record.topic, record.partition, record.offset) == place[:3] == (kafka_topic, 0, 0)
    assert (record.key, record.value, record.headers, record.timestamp) == (b"key", b"value", (("h", b"1"),), place.timestamp)
    assert [stored.value for stored in kafka_broker.records(kafka_topic)] == [b"value"]

{mark}
async def test_three_nodes(consumer, producer, kafka_topic, kafka_cluster):
    assert kafka_cluster.node_ids == (1, 2, 3)
    await asyncio.gather(*[producer.send_and_wait(kafka_topic, b"%d" % number) for number in range(5)])
    assert sorted(record.value for record in await consumer.getmany(5)) == [b"%d" % number for number in range(5)]

{mark}
async def test_a_broker_that_fails(kafka_broker, kafka_topic, producer):
    rule = kafka_broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
    assert (await producer.send_and_wait(kafka_topic, b"x")).offset == 0
    assert rule.used == 2

{mark}
async def test_iterating(kafka_topic, producer, consumer):
    await producer.send_many(kafka_topic, [b"a", b"b", b"c"])
    seen = []
    async for record in consumer:
        seen.append(record.value)
        if len(seen) == 3:
            break
    assert seen == [b"a", b"b", b"c"]
    with pytest.raises(KafkaTimeoutError, match="no record from .* within 30 ms, after 3 records so far"):
        await consumer.getone(timeout_ms=30)
    assert await consumer.getmany(2, timeout_ms=1) == []
"""
BLOCKING = """
def test_one_node(kafka_broker, kafka_topic, producer, consumer):
    assert isinstance(kafka_broker, ThreadedCluster) and kafka_broker.node_ids == (1,)
    place = producer.send_and_wait(kafka_topic, b"value", b"key", headers=[("h", b"1")])
    record = consumer.getone()
    assert (record.topic, record.partition, record.offset) == place[:3] == (kafka_topic, 0, 0)
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("h", b"1"),))
    assert [stored.value for stored in kafka_broker.records(kafka_topic)] == [b"value"]

def test_three_nodes(kafka_cluster, kafka_topic, producer, consumer):
    assert kafka_cluster.node_ids == (1, 2, 3)
    places = producer.send_many(kafka_topic, [b"a", ProducerRecord(kafka_topic, b"b", partition=0), b"c"])
    assert {place.topic for place in places} == {kafka_topic}
    assert sorted(record.value for record in consumer.getmany(3)) == [b"a", b"b", b"c"]

def test_iterating(kafka_topic, producer, consumer):
    producer.send_many(kafka_topic, [b"a", b"b", b"c"])
    producer.flush()
    assert [record.value for _, record in zip(range(3), consumer)] == [b"a", b"b", b"c"]
    with pytest.raises(KafkaTimeoutError):
        consumer.getone(timeout_ms=30)

class TestTransactions:
    @pytest.fixture
    def kafka_producer_settings(self):
        return {"transactional_id": "t"}

    @pytest.fixture
    def kafka_consumer_settings(self):
        return {"isolation_level": "read_committed", "timeout_ms": 5_000}

    def test_committed_only(self, kafka_topic, producer, consumer):
        with producer.transaction():
            producer.send_and_wait(kafka_topic, b"kept")
        with pytest.raises(ZeroDivisionError):
            with producer.transaction():
                producer.send_and_wait(kafka_topic, b"dropped")
                1 / 0
        with producer.transaction():
            producer.send_and_wait(kafka_topic, b"kept, too")
        assert [record.value for record in consumer.getmany(2)] == [b"kept", b"kept, too"]
        assert consumer.getmany(1, timeout_ms=10) == []
"""
TESTS_ON_A_LOOP = 4


def ini(*lines: str, mode: str = "strict") -> str:
    return "\n".join(
        [
            "[pytest]",
            f"asyncio_mode = {mode}",
            "asyncio_default_fixture_loop_scope = function",
            "filterwarnings = error",
            *lines,
        ]
    )


@pytest.fixture(autouse=True)
def settings(pytester: pytest.Pytester) -> None:
    pytester.makeini(ini())


def run(pytester: pytest.Pytester, code: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(IMPORTS + code)
    # Hypothesis' plugin would be imported again at the end of each run.
    return pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments
    )


def test_pytest_asyncio_in_strict_mode(pytester: pytest.Pytester) -> None:
    run(pytester, ON_A_LOOP.format(mark="@pytest.mark.asyncio")).assert_outcomes(
        passed=TESTS_ON_A_LOOP
    )


def test_pytest_asyncio_in_auto_mode(pytester: pytest.Pytester) -> None:
    pytester.makeini(ini(mode="auto"))
    run(pytester, ON_A_LOOP.format(mark="")).assert_outcomes(passed=TESTS_ON_A_LOOP)


def test_fixtures_live_on_the_loop_that_their_test_shares_with_others(
    pytester: pytest.Pytester,
) -> None:
    code = """
    loops = set()

    @pytest.mark.asyncio(loop_scope="module")
    class TestShared:
        @pytest.mark.parametrize("number", range(2))
        async def test_one(self, kafka_topic, producer, consumer, number):
            loops.add(id(asyncio.get_running_loop()))
            await producer.send_and_wait(kafka_topic, b"x")
            assert (await consumer.getone()).value == b"x"
            assert len(loops) == 1
    """
    run(pytester, code.replace("\n    ", "\n")).assert_outcomes(passed=2)
    pytester.makeini(ini("asyncio_default_test_loop_scope = session"))
    run(pytester, ON_A_LOOP.format(mark="@pytest.mark.asyncio")).assert_outcomes(
        passed=TESTS_ON_A_LOOP
    )


@pytest.mark.parametrize(
    "plugins", [(), ("-p", "no:asyncio")], ids=["with pytest-asyncio", "alone"]
)
def test_anyio(pytester: pytest.Pytester, plugins: tuple[str, ...]) -> None:
    if plugins:
        pytester.makeini("[pytest]\nfilterwarnings = error")
    backend = "@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    run(pytester, backend + ON_A_LOOP.format(mark="@pytest.mark.anyio"), *plugins).assert_outcomes(
        passed=TESTS_ON_A_LOOP
    )


def test_tests_that_block(pytester: pytest.Pytester) -> None:
    run(pytester, BLOCKING).assert_outcomes(passed=4)


def test_tests_of_all_kinds_in_one_file(pytester: pytest.Pytester) -> None:
    code = """
    @pytest.mark.asyncio
    async def test_a(kafka_broker):
        assert isinstance(kafka_broker, EmbeddedCluster)

    def test_b(kafka_broker):
        assert isinstance(kafka_broker, ThreadedCluster)

    @pytest.mark.anyio
    @pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": True})])
    async def test_c(kafka_broker):
        assert isinstance(kafka_broker, EmbeddedCluster)
        assert asyncio.get_running_loop().get_debug()

    async def helper(): ...
    """
    run(pytester, code.replace("\n    ", "\n")).assert_outcomes(passed=3)


def test_the_settings_come_from_fixtures_and_the_ini_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_ID", "me")
    pytester.makeini(
        ini(
            "kafka_partitions = 4",
            "kafka_client_settings =",
            "    client.id = $MY_ID",
            "    linger.ms = 0",
            mode="auto",
        )
    )
    code = """
    async def test_from_the_ini_file(kafka_broker, kafka_topic, producer, consumer):
        assert await producer.partitions_for(kafka_topic) == [0, 1, 2, 3]
        assert (producer.config.client_id, producer.config.linger_ms) == ("me", 0)
        for partition in range(4):
            await producer.send_and_wait(kafka_topic, b"%d" % partition, partition=partition)
        assert sorted((record.partition, record.value) for record in await consumer.getmany(4)) == [(number, b"%d" % number) for number in range(4)]
        assert {request.client_id for request in kafka_broker.requests} == {"me"}

    @pytest.mark.parametrize("kafka_settings", [{"nodes": 2, "transaction_version": 0}])
    @pytest.mark.parametrize("kafka_topic_settings", [{"num_partitions": 2, "configs": {"message.timestamp.type": "LogAppendTime"}}])
    @pytest.mark.parametrize("kafka_producer_settings", [{"linger_ms": 7, "acks": 1, "enable_idempotence": False}])
    async def test_from_fixtures(kafka_broker, kafka_topic, producer, consumer):
        assert kafka_broker.node_ids == (1, 2)
        assert await producer.partitions_for(kafka_topic) == [0, 1]
        assert (producer.config.client_id, producer.config.linger_ms) == ("me", 7)
        await producer.send_and_wait(kafka_topic, b"x", timestamp_ms=1)
        assert (await consumer.getone()).timestamp_type == 1
    """
    run(pytester, code.replace("\n    ", "\n")).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("arguments", "lines", "text"),
    [
        (["--kafka=nowhere"], [], "*--kafka=nowhere: must be embedded, real or HOST:PORT*"),
        (["--kafka-version=4.1.0"], [], "*add --kafka=real*"),
        ([], ["kafka_partitions = 0"], "*kafka_partitions = 0: must be a whole number*"),
        (
            [],
            ["kafka_client_settings = linger.sm=1"],
            "*kafka_client_settings: unknown setting 'linger.sm': did you mean 'linger.ms'*",
        ),
        (
            [],
            ["kafka_client_settings = sasl.password hunter2"],
            "*kafka_client_settings: line 1 must be name=value*",
        ),
    ],
)
def test_wrong_settings_are_named(
    pytester: pytest.Pytester, arguments: list[str], lines: list[str], text: str
) -> None:
    pytester.makeini(ini(*lines))
    result = run(pytester, "def test_it(kafka_topic, producer): pass", *arguments)
    assert result.ret != 0
    (
        result.stderr if "UsageError" in str(result.stderr) or arguments else result.stdout
    ).fnmatch_lines([text])
    assert "hunter2" not in str(result.stdout) + str(result.stderr)


def test_a_coroutine_that_nothing_runs_and_another_library_are_named(
    pytester: pytest.Pytester,
) -> None:
    code = """
    @pytest.mark.parametrize("anyio_backend", ["trio"])
    @pytest.mark.anyio
    async def test_trio(kafka_topic): ...

    async def test_nothing(kafka_topic): ...
    """
    pytester.makeini("[pytest]")
    result = run(pytester, code.replace("\n    ", "\n"), "-p", "no:asyncio")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [
            "*the Kafka fixtures need asyncio, but this test runs on trio*",
            "*this test is a coroutine, but no plugin runs it*",
        ]
    )


def test_two_plugins_that_quarrel_over_a_test_are_named(pytester: pytest.Pytester) -> None:
    pytester.makeini(ini(mode="auto"))
    code = (
        "@pytest.mark.anyio\n@pytest.mark.parametrize('anyio_backend', ['asyncio'])\nasync def "
        "test_it(kafka_topic): ...\n"
    )
    result = run(pytester, code)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            (
                "*pytest-asyncio runs this test, but anyio runs its fixtures on another event loop: "
                "use asyncio_mode = strict*"
            )
        ]
    )


PORTABLE = """
import uuid

@pytest.mark.asyncio
async def test_on_a_loop(kafka_broker, kafka_topic, producer, consumer):
    await producer.send_and_wait(kafka_topic, b"x")
    assert (await consumer.getone()).value == b"x"
    assert [record.value for record in await kafka_broker.wait_for_records(kafka_topic, 1)] == [b"x"]
    with pytest.raises(KafkaTimeoutError, match="1 of 2 records"):
        await kafka_broker.wait_for_records(kafka_topic, 2, timeout_seconds=0.01)
    assert [record.value for record in kafka_broker.records(kafka_topic, 0, committed_only=True)] == [b"x"]
    other = f"other-{uuid.uuid4()}"
    kafka_broker.create_topic(other, 3, {"cleanup.policy": "compact"})
    assert await producer.partitions_for(other) == [0, 1, 2]
    kafka_broker.delete_topic(other)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION|there is no topic"):
        kafka_broker.delete_topic(other)

def test_blocking(kafka_broker, kafka_topic, producer, consumer):
    producer.send_and_wait(kafka_topic, b"x")
    assert consumer.getone().value == b"x"
    assert [record.value for record in kafka_broker.wait_for_records(kafka_topic, 1)] == [b"x"]
"""
EMBEDDED_ONLY = """
def test_hooks(kafka_broker):
    kafka_broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
"""


def test_portable_tests_pass_with_the_embedded_cluster(pytester: pytest.Pytester) -> None:
    run(pytester, PORTABLE + EMBEDDED_ONLY).assert_outcomes(passed=3)


def test_a_cluster_that_runs_already(pytester: pytest.Pytester) -> None:
    with EmbeddedCluster.in_thread() as other:
        result = run(
            pytester, PORTABLE + EMBEDDED_ONLY, f"--kafka={other.bootstrap_servers}", "-rs"
        )
        result.assert_outcomes(passed=2, skipped=1)
        result.stdout.fnmatch_lines(
            [
                f"kafka: {other.bootstrap_servers}",
                "*only the embedded cluster has on*",
            ]
        )
        assert other.requests and not other.topics, "each test removes its topic"


class InPlaceOfRealOnes:
    """Counts the clusters that are started, and starts embedded ones instead."""

    started: ClassVar[list[tuple[int, str]]] = []

    def __init__(self, nodes: int = 1, *, version: str) -> None:
        self.started.append((nodes, version))
        self._nodes = nodes

    def __enter__(self) -> ThreadedCluster:
        self._cluster = EmbeddedCluster.in_thread(nodes=self._nodes)
        return self._cluster.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._cluster.__exit__(*error)


def test_one_real_broker_and_one_real_cluster_serve_all_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioprod.testing.real_kafka.RealKafka", InPlaceOfRealOnes)
    monkeypatch.setattr("aioprod.testing.real_cluster.RealCluster", InPlaceOfRealOnes)
    monkeypatch.setattr(InPlaceOfRealOnes, "started", [])
    code = """
    @pytest.mark.parametrize("number", range(2))
    def test_one(kafka_broker, kafka_topic, producer, number):
        assert producer.send_and_wait(kafka_topic, b"x").offset == 0
        assert len(kafka_broker.bootstrap_servers.split(",")) == 1

    @pytest.mark.parametrize("number", range(2))
    @pytest.mark.asyncio
    async def test_three(kafka_cluster, kafka_topic, producer, number):
        assert (await producer.send_and_wait(kafka_topic, b"x")).offset == 0
        assert len(kafka_cluster.bootstrap_servers.split(",")) == 3
    """
    run(
        pytester, code.replace("\n    ", "\n"), "--kafka=real", "--kafka-version=3.9.2"
    ).assert_outcomes(passed=4)
    assert InPlaceOfRealOnes.started == [(1, "3.9.2"), (3, "3.9.2")]


def test_a_real_broker_behind_the_same_fixtures(pytester: pytest.Pytester, kafka: str) -> None:
    result = run(pytester, PORTABLE + EMBEDDED_ONLY, f"--kafka={kafka}")
    result.assert_outcomes(passed=2, skipped=1)


def test_every_name_of_the_test_kit_is_there_when_asked_for() -> None:
    assert testing.__all__ == sorted(testing._HOMES) == sorted(testing.__all__)
    assert set(testing.__all__) <= set(dir(testing))
    for name in testing.__all__:
        assert getattr(testing, name).__doc__, f"{name} has no description"
    with pytest.raises(AttributeError, match="has no attribute 'EmbeddedKafka'"):
        testing.EmbeddedKafka  # type: ignore[attr-defined]  # noqa: B018


def test_the_plugin_imports_no_broker_before_a_test_wants_one() -> None:
    look = (
        "import sys, aioprod.testing.pytest_plugin; print([name for name in sys.modules if "
        "name.startswith('aioprod.testing.broker')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        == "[]\n"
    )
