"""The first programs of the pages about PySpark run as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aioprod import Producer
from aioprod.testing import ThreadedCluster
from tests.testing.doc_blocks import DOCS, run_block


def send(broker: ThreadedCluster, *values: bytes) -> None:
    async def run() -> None:
        async with Producer(broker.bootstrap_servers) as producer:
            for value in values:
                await producer.send_and_wait("orders", value, key=b"17")

    asyncio.run(run())


def test_a_stream_copies_a_topic(
    session: SparkSession, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    send(threaded_broker, b"tea", b"milk")
    page = (DOCS / "spark.md").read_text(encoding="utf-8")
    page = page.replace('"checkpoints/', f'"{tmp_path}/')
    run_block("spark.md", page, "orders-upper", threaded_broker.bootstrap_servers)
    stored = threaded_broker.records("orders-upper", committed_only=True)
    assert [(record.key, record.value) for record in stored] == [(b"17", b"TEA"), (b"17", b"MILK")]


def test_json_is_decoded(
    session: SparkSession, threaded_broker: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    send(threaded_broker, b'{"id": 4, "amount": 2.5, "at": "2026-01-31T10:00:00Z"}', b"tea")
    page = (DOCS / "spark-values.md").read_text(encoding="utf-8")
    run_block("spark-values.md", page, "_corrupt_record", threaded_broker.bootstrap_servers)
    shown = capsys.readouterr().out
    assert "2.50|2026-01-31 10:00:00" in shown and shown.count("tea") == 1
