"""examples/spark_pipeline.py with a Spark session and the embedded broker."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioprod
from aioprod import Producer
from aioprod.testing import ThreadedCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(aioprod.__file__).parent.parent / "examples"


async def send(servers: str, values: list[bytes]) -> None:
    async with Producer(servers) as producer:
        await (await producer.send_many("orders", values))


def test_valid_orders_are_priced_and_others_rejected_once(
    spark: SparkSession,
    threaded_broker: ThreadedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    pipeline = __import__("spark_pipeline")
    orders = [
        json.dumps({"customer": "42", "item": "tea", "quantity": 3, "price": 4.5}).encode(),
        b"not JSON",
        json.dumps({"customer": "7", "item": "milk", "quantity": 0, "price": 1}).encode(),
    ]
    for topic in ("orders", "orders-priced", "orders-rejected"):
        threaded_broker.create_topic(topic, 1)
    servers = threaded_broker.bootstrap_servers
    asyncio.run(send(servers, orders))
    for _ in range(2):  # the second run finds nothing new
        for query in pipeline.start(spark, servers, str(tmp_path), once=True):
            assert query.awaitTermination(100)
    (priced,) = threaded_broker.records("orders-priced", committed_only=True)
    assert priced.key == b"42"
    assert json.loads(priced.value or b"") == {"customer": "42", "item": "tea", "total": 13.5}
    rejected = threaded_broker.records("orders-rejected", committed_only=True)
    assert sorted(record.value or b"" for record in rejected) == sorted(orders[1:])
    sys.modules.pop("spark_pipeline")
