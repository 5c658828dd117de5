"""The adapters send the same records, deliver them, and report failures."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.producer.partitioner import partition_for_key
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail
from benchmarks.adapters import (
    ADAPTERS,
    DeliveryFailedError,
    Feature,
    ForeignClient,
    Load,
    Settings,
    able,
    foreign,
    started,
)
from benchmarks.adapters.confluent import counter
from benchmarks.adapters.settings import different_keys
from benchmarks.broker import broker_process
from benchmarks.harness import Cost
from benchmarks.measures import measure
from benchmarks.real_broker import (
    RecordsMissingError,
    bootstrap,
    check_record_count,
    record_count,
)
from benchmarks.workers import missing

with warnings.catch_warnings():
    # kafka-python uses a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401

# Java needs Kafka's jars, the others Go or npm.
MARKS = {
    name: pytest.mark.kafka if name == "java" else pytest.mark.interop
    for name, adapter in ADAPTERS.items()
    if issubclass(adapter, ForeignClient)
}
TOPIC = "t"


def clients(*features: Feature) -> list[Any]:
    """Return the clients that support all features, each with the mark that it needs."""
    return [pytest.param(name, marks=MARKS.get(name, ())) for name in able(*features)]


@contextmanager
def broker(partitions: int = 1) -> Iterator[str]:
    """Run an embedded broker with the topic."""
    with broker_process({TOPIC: partitions}) as address, bootstrap(address):
        yield address


@pytest.mark.benchmarks
@pytest.mark.parametrize("client", clients())
async def test_each_client_delivers_each_record_once(client: str) -> None:
    with broker() as servers:
        async with started(ADAPTERS[client](), Settings(servers)) as adapter:
            await adapter.send_all(Load(TOPIC, 2_500))
            await adapter.send_all(Load(TOPIC, 10, value_size=1_000))
        check_record_count(servers, TOPIC, 1, 2_510)


@pytest.mark.benchmarks
@pytest.mark.parametrize(
    "client", [client for client in clients() if client.values != ("line rate",)]
)
async def test_keys_choose_the_same_partitions_as_in_java(client: str) -> None:
    partitions, load = 3, Load(TOPIC, 300, keys=50)
    expected = [0] * partitions
    for number in range(load.records):
        expected[partition_for_key(different_keys(load.keys)[number % load.keys], partitions)] += 1
    with broker(partitions) as servers:
        async with started(ADAPTERS[client](), Settings(servers)) as adapter:
            await adapter.send_all(load)
        assert [
            record_count(servers, [TOPIC], [number]) for number in range(partitions)
        ] == expected


@pytest.mark.benchmarks
@pytest.mark.parametrize("client", clients("headers", "codecs"))
async def test_headers_and_other_settings_are_used(client: str) -> None:
    with broker(2) as servers:
        async with started(
            ADAPTERS[client](), Settings(servers, acks="1", linger_ms=0, compression_type="zstd")
        ) as adapter:
            await adapter.send_all(Load(TOPIC, 100, headers=2))
        check_record_count(servers, TOPIC, 2, 100)


@pytest.mark.benchmarks
@pytest.mark.parametrize("client", able("one record"))
async def test_one_record_is_awaited(client: str) -> None:
    with broker() as servers:
        async with started(ADAPTERS[client](), Settings(servers, linger_ms=0)) as adapter:
            await adapter.send_and_wait(TOPIC, b"value", b"key")
            check_record_count(servers, TOPIC, 1, 1)


@pytest.mark.benchmarks
@pytest.mark.parametrize("client", ["confluent-kafka", "confluent-kafka produce_batch"])
async def test_a_full_buffer_loses_nothing(client: str) -> None:
    with broker() as servers:
        async with started(ADAPTERS[client](), Settings(servers, buffer_memory=65_536)) as adapter:
            await adapter.send_all(Load(TOPIC, 5_000))
        check_record_count(servers, TOPIC, 1, 5_000)


@pytest.mark.benchmarks
@pytest.mark.parametrize("client", [pytest.param(name, marks=mark) for name, mark in MARKS.items()])
async def test_a_foreign_program_is_warm_and_measures_itself(
    client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "WARM_UP_S", 0.5)
    arguments = {"load": {"topic": TOPIC, "records": 30_000, "keys": 10}, "warm_up_records": 5_000}
    with broker() as servers:
        sent = 0
        for _ in range(2):
            numbers = await measure("throughput")(ADAPTERS[client](), Settings(servers), arguments)
            sent += numbers["sent"]
            assert numbers["records"] == 30_000 and numbers["cpu_s"] > 0 and numbers["wall_s"] > 0
            assert numbers["sent"] >= 35_000
        check_record_count(servers, TOPIC, 1, sent)
    assert any(digit in ADAPTERS[client]().describe() for digit in "123456789")


PROGRAM = """
print("a client 1.0", flush=True)
for line in iter(input, "end"):
    kind, *words = line.split("\\t")
    if kind == "send" and words[0] == "refused":
        print("failed\\tno such topic", flush=True)
    elif kind == "send":
        assert words[1] == str(len(open(words[2]).read().splitlines())), words
        print("sent", words[1], 0.25, 0.5, sep="\\t", flush=True)
    else:
        print("done", flush=True)
"""


class Scripted(foreign.ForeignClient):
    name = "scripted"

    @staticmethod
    def command() -> list[str]:
        return [sys.executable, "-c", PROGRAM]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    adapter = Scripted()
    adapter.describe()
    yield adapter
    foreign.running.pop(Scripted.name).close()


async def test_what_a_program_reports_is_its_cost(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "WARM_UP_S", 0.0)
    load = Load(TOPIC, 1_009)
    async with started(scripted, Settings("127.0.0.1:1")):
        assert scripted.describe() == "a client 1.0"
        assert scripted.warm_up(load) == 1_009
        assert scripted.cost(load) == Cost(1_009, 0.25, 0.5)


async def test_a_program_that_fails_or_ends_is_an_error(scripted: Scripted) -> None:
    with pytest.raises(DeliveryFailedError, match="no such topic"):
        await scripted.send_all(Load("refused", 1))
    with pytest.raises(foreign.ProgramError, match="exit status 1"):
        await scripted.send_all(Load(TOPIC, 3))


def test_a_client_whose_ecosystem_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert missing("franz-go") == "Go 1.26 is not installed: no go on PATH"
    assert missing("kafkajs") == missing("platformatic")
    assert missing("kafkajs") == "Node.js is not installed: no npm on PATH"
    assert missing("aioprod") == ""


def test_a_failed_or_missing_delivery_report_is_an_error() -> None:
    report, check = counter()
    report(None, object())
    check(1)
    with pytest.raises(DeliveryFailedError, match="1 delivery reports for 2 records"):
        check(2)
    report("refused", object())
    with pytest.raises(DeliveryFailedError, match="refused"):
        check(2)


async def test_the_line_rate_checks_all_responses() -> None:
    with EmbeddedCluster.in_thread() as cluster:
        cluster.create_topic(TOPIC, 2)
        cluster.on(ApiKey.PRODUCE, fail(ErrorCode.REQUEST_TIMED_OUT), times=1)
        adapter = ADAPTERS["line rate"]()
        await adapter.start(Settings(cluster.bootstrap_servers))
        await adapter.send_all(Load(TOPIC, 10_000))
        with pytest.raises(DeliveryFailedError, match="error code 7"):
            await adapter.stop()


def test_missing_and_duplicate_records_are_detected() -> None:
    with broker() as servers:
        for acknowledged in (1, -1):
            with pytest.raises(RecordsMissingError):
                check_record_count(servers, TOPIC, 1, acknowledged)
        check_record_count(servers, TOPIC, 1, -1, more_allowed=True)


def test_values_have_their_size_and_compress_to_about_half() -> None:
    import zlib

    for size in (1, 10, 100, 10_000):
        values = list(Load(TOPIC, 200, value_size=size).values())
        assert {len(value) for value in values} == {size}
        assert size == 1 or len(set(values)) > 15
        assert not any(b"\n" in value for value in values)
    joined = b"".join(Load(TOPIC, 500).values())
    assert 0.3 < len(zlib.compress(joined)) / len(joined) < 0.6
