"""Spark writes to imitated Event Hubs and reads from it; `tests/services` runs what it is made of
on each quirk.
"""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from aioprod.spark.coordination import CoordinationClient
from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once.ids import Sink
from aioprod.spark.exactly_once.reports import TaskAttempt
from aioprod.spark.exactly_once.task import write_task
from aioprod.spark.sink_options import parse_sink_options
from aioprod.testing import EmbeddedCluster

pytestmark = pytest.mark.real_time
COUNT = 200


def test_a_table_is_written_to_event_hubs_and_read(session: SparkSession) -> None:
    with EmbeddedCluster.in_thread(nodes=2, imitate="event-hubs") as cluster:
        cluster.create_topic("orders", 2)
        servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        rows = session.range(COUNT, numPartitions=2).selectExpr("cast(id as string) as value")
        writer = rows.write.format("aioprod").mode("append").option("topic", "orders")
        writer.options(**servers, delivery="at-least-once").save()
        read = session.read.format("aioprod").options(**servers, subscribe="orders").load()
        values = {bytes(row.value) for row in read.select("value").collect()}
        assert values == {b"%d" % number for number in range(COUNT)}


async def test_a_service_without_transactions_needs_another_delivery() -> None:
    """A task raises the error; this needs no Spark."""
    with EmbeddedCluster.in_thread(imitate="no-transactions") as cluster:
        cluster.create_topic("orders")
        sink = parse_sink_options(
            {
                "kafka.bootstrap.servers": cluster.bootstrap_servers,
                "topic": "orders",
                "delivery": "exactly-once",
            }
        )
        brokers = CoordinationClient(sink.producer, "c")
        attempt = TaskAttempt(Sink("p", "query"), "0123abcd", 1, 0, 0)
        batch = pa.RecordBatch.from_pydict({"value": ["tea"]})
        with pytest.raises(SinkError, match="use delivery=at-least-once") as caught:
            await write_task(brokers, sink, attempt, iter([batch]))
        await brokers.close()
        assert "does not support AddPartitionsToTxnRequest" in str(caught.value)
