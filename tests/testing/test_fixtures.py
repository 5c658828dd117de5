"""The shared fixtures work as documented."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Message, Producer

from aioprod.testing import ThreadedCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("pytester",)


async def test_bootstrap_is_a_broker_that_takes_records(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = await producer.send_and_wait("fixture-bootstrap", b"value")
    assert sent.offset == 0


async def test_kafka_3_9_takes_records(kafka_3_9: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka_3_9) as producer:
        sent = await producer.send_and_wait("fixture-3.9", b"value")
    assert sent.offset == 0


def test_the_threaded_broker_serves_a_client_that_blocks(threaded_broker: ThreadedCluster) -> None:
    delivered: list[Message] = []
    producer = Producer({"bootstrap.servers": threaded_broker.bootstrap_servers})
    producer.produce(
        "fixture-threaded", b"value", on_delivery=lambda error, message: delivered.append(message)
    )
    assert producer.flush(20) == 0
    assert [message.error() for message in delivered] == [None]


def test_spark_runs_python_and_reads_kafka_by_its_own_connector(
    spark: SparkSession, threaded_broker: ThreadedCluster
) -> None:
    producer = Producer({"bootstrap.servers": threaded_broker.bootstrap_servers})
    for number in range(10):
        producer.produce("fixture-spark", str(number).encode())
    assert producer.flush(20) == 0
    source = spark.read.format("kafka").option(
        "kafka.bootstrap.servers", threaded_broker.bootstrap_servers
    )
    values = (
        source.option("subscribe", "fixture-spark")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )
    assert sorted(
        row.value for row in values.mapInPandas(lambda frames: frames, "value string").collect()
    ) == [str(number) for number in range(10)]


async def _forever() -> None:
    await asyncio.Event().wait()


async def test_a_task_that_was_cancelled_before_the_end_is_not_a_leak() -> None:
    task = asyncio.create_task(_forever())
    await asyncio.sleep(0)
    task.cancel()


LEAK = """
import asyncio

async def test_leaves_a_task():
    globals()["kept"] = asyncio.create_task(asyncio.Event().wait(), name="forgotten")
"""


def test_a_task_that_outlives_its_test_fails_it(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    conftest = pytestconfig.rootpath / "tests" / "conftest.py"
    pytester.makeconftest(conftest.read_text())
    pytester.makeini("[pytest]\nasyncio_mode = auto\nmarkers =\n    kafka\n    spark\n")
    pytester.makepyfile(LEAK)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*tasks left after the test: *forgotten*"])
