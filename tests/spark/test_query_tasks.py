"""The tasks of a query's newest micro-batch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from aioprod.spark.page.tasks import QueryTasks
from aioprod.testing import ThreadedCluster
from tests.waiting import wait_until

from .source_topics import send

pytestmark = pytest.mark.spark


def test_the_longest_stage_has_the_records_and_times_of_its_tasks(
    session: SparkSession, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    servers, tasks = threaded_broker.bootstrap_servers, QueryTasks()
    threaded_broker.create_topic("orders", 2)
    for partition, count in ((0, 9), (1, 1)):
        send(servers, "orders", partition=[partition] * count, value=[b"x"] * count)
    options = {"kafka.bootstrap.servers": servers, "subscribe": "orders"}
    orders = session.readStream.format("aioprod").options(**options, startingOffsets="earliest")
    query = (
        orders.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    run = UUID(str(query.runId))
    wait_until(lambda: tasks.longest_stage("orders", run) is not None)  # in Spark's own thread
    stage = tasks.longest_stage("orders", run)
    assert stage is not None and (stage["tasks"], stage["mean_rows"]) == (2, 5)
    found = stage["longest"]
    assert {each["task"]: each["rows"] for each in found} == {0: 9, 1: 1}
    times = [each["ms"] for each in found]
    assert times == sorted(times, reverse=True) and sum(times) == 2 * stage["mean_ms"]
    assert {each["executor"] for each in found} == {"driver"}
    assert tasks.longest_stage("others", UUID(int=1)) is None


def test_the_stage_is_that_of_the_newest_micro_batch(
    session: SparkSession, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    servers, tasks = threaded_broker.bootstrap_servers, QueryTasks()
    threaded_broker.create_topic("orders", 1)
    options = {"kafka.bootstrap.servers": servers, "subscribe": "orders"}
    orders = session.readStream.format("aioprod").options(**options, startingOffsets="earliest")
    writer = orders.load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        run = UUID(str(query.runId))

        def newest() -> int:
            stage = tasks.longest_stage("orders", run)
            return -1 if stage is None else int(stage["stage"])

        for _ in range(3):
            before = newest()
            send(servers, "orders", value=[b"x"])
            query.processAllAvailable()
            wait_until(partial(lambda number: newest() > number, before))
    finally:
        query.stop()
