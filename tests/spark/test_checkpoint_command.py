"""`aioprod spark checkpoint` on the checkpoints of real queries, whole, restored and damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aioprod import cli
from aioprod.spark.checkpoint_check import compare
from aioprod.spark.checkpoint_files import Checkpoint, PlannedBatch, ends_of_sources
from aioprod.spark.exactly_once.decision import DecidedTransaction, Decision
from aioprod.testing import ThreadedCluster

from .source_topics import send

TRANSACTION = (DecidedTransaction(0, 1, 5, 0, True, 7),)
Show = Callable[..., tuple[int, dict[str, Any]]]


def checkpoint(planned: int, finished: int) -> Checkpoint:
    batches = [PlannedBatch(number, 0, 0, (f'{{"t":{{"0":{number}}}}}',)) for number in range(9)]
    return Checkpoint(
        "query",
        batches[planned] if planned >= 0 else None,
        finished,
        batches[finished] if finished >= 0 else None,
    )


@pytest.mark.parametrize(
    ("planned", "finished", "decided", "usable", "ends", "says"),
    [
        (4, 4, 4, True, 4, "batch 4 was written; the next run continues after it"),
        (4, 3, 4, True, 4, "reads it again and writes nothing"),
        (4, 3, 3, True, 3, "batch 4 was not written: the next run writes it"),
        (0, -1, -1, True, None, "batch 0 was not written"),
        (4, 4, 2, True, 4, "the last batch with rows was 2"),
        (4, 3, 5, False, 8, "it is an old copy"),
        (-1, -1, 0, False, 8, "ends at batch -1"),
    ],
)
def test_a_restart_is_predicted(
    planned: int, finished: int, decided: int, usable: bool, ends: int | None, says: str
) -> None:
    decision = Decision(decided, "0123abcd", 1, TRANSACTION, ('{"t":{"0":8}}',))
    verdict = compare(checkpoint(planned, finished), decision)
    expected = () if ends is None else (f'{{"t":{{"0":{ends}}}}}',)
    assert (verdict.is_usable, verdict.ends) == (usable, expected)
    assert says in verdict.text


def test_a_decision_that_was_taken_back_wrote_nothing() -> None:
    decision = Decision(4, "0123abcd", 1, TRANSACTION).taken_back()
    verdict = compare(checkpoint(4, 3), decision)
    assert verdict.is_usable and "batch 4 was not written" in verdict.text


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ('v1\n{}\n{"t":{"0":1}}\n-\n7', ('{"t":{"0":1}}', "7")),
        ('v2\n{}\n0:{"t":{"0":1}}\norders:-\nfiles:7', ('{"t":{"0":1}}', "7")),
    ],
)
def test_both_formats_of_offsets_are_read(text: str, ends: tuple[str, ...]) -> None:
    assert ends_of_sources(text) == ends


@pytest.fixture
def show(threaded_broker: ThreadedCluster, capsys: pytest.CaptureFixture[str]) -> Show:
    def run(directory: Path, *options: str) -> tuple[int, dict[str, Any]]:
        given = ["spark", "checkpoint", str(directory), "-b", threaded_broker.bootstrap_servers]
        status = cli.main([*given, "--json", *options])
        return status, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("log_format", ["1", pytest.param("2", marks=pytest.mark.interop)])
def test_the_checkpoint_of_a_query(
    session: SparkSession,
    threaded_broker: ThreadedCluster,
    show: Show,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    log_format: str,
) -> None:
    servers, at = threaded_broker.bootstrap_servers, tmp_path / "now"
    threaded_broker.create_topic("orders", 2)
    kafka = {"kafka.bootstrap.servers": servers}
    session.conf.set("spark.sql.streaming.offsetLog.formatVersion", log_format)
    records = session.readStream.format("aioprod").options(
        **kafka, subscribe="orders", startingOffsets="earliest"
    )

    def copy_to(directory: Path, *values: bytes) -> None:
        send(servers, "orders", value=list(values), partition=[0] * len(values))
        writer = records.load().select("value").writeStream.format("aioprod")
        query = (
            writer.options(**kafka, topic="copies", checkpointLocation=str(directory))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    try:
        copy_to(at, b"a", b"b")
        shutil.copytree(at, tmp_path / "old")
        send(servers, "orders", value=[b"c"], partition=[1])
        second = show(at)[1]["partitions"][1]
        assert list(second.values()) == ["orders", 1, 0, 0, 1, 1]
        copy_to(at, b"d")
        status, found = show(at)
        assert (status, found["written"], found["written_topic"]) == (0, 1, "copies")
        assert [(each["offset"], each["lag"]) for each in found["partitions"]] == [(3, 0), (1, 0)]

        status, found = show(tmp_path / "old")
        assert (status, found["usable"]) == (1, False)
        # A new checkpoint continues where the last written batch ended.
        given = ["spark", "checkpoint", str(tmp_path / "old"), "-b", servers]
        assert cli.main([*given, "--starting-offsets"]) == 0
        offsets = capsys.readouterr().out.strip()
        assert json.loads(offsets) == {"orders": {"0": 3, "1": 1}}
        records = records.option("startingOffsets", offsets)
        copy_to(tmp_path / "new", b"e")
        copied = threaded_broker.records("copies", committed_only=True)
        assert sorted(record.value or b"" for record in copied) == [b"a", b"b", b"c", b"d", b"e"]
    finally:
        session.conf.unset("spark.sql.streaming.offsetLog.formatVersion")

    # Spark has not noted the end of the last batch.
    for path in (at / "commits").glob("*1*"):
        path.unlink()
    assert "writes nothing" in show(at)[1]["text"]
    threaded_broker.delete_topic("orders")
    threaded_broker.create_topic("orders", 2)
    status, found = show(at)
    assert status == 1 and "was deleted and created again" in found["losses"][0]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("metadata", None, "doesn't exist: is this a query's checkpoint?"),
        ("metadata", "{}", "has no query id"),
        ("metadata", '{"id": ', "isn't JSON"),
        ("metadata", "[" * 100_000, "isn't JSON"),
        ("offsets/1", "v3\n{}\n{}", "begins with 'v3"),
        ("offsets/1", "", "begins with ''"),
        ("offsets/1", "v1\n[]\n{}", "isn't a JSON object"),
        ("offsets/1", 'v1\n{"batchTimestampMs": "x"}\n-', "times that aren't numbers"),
        ("commits/2", "v1\n{}", "commits has batch 2, but offsets ends at 1"),
    ],
)
def test_a_damaged_checkpoint_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, says: str
) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text('{"id":"query"}')
    (tmp_path / "offsets" / "1").write_text('v1\n{}\n{"t":{"0":1}}')
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    assert cli.main(["spark", "checkpoint", str(tmp_path), "--offline"]) == 1
    error = capsys.readouterr().err
    assert says in error and "Traceback" not in error and error.count("\n") == 1


@pytest.mark.parametrize("option", ["--json", "--starting-offsets", "--offline"])
def test_hostile_names_reach_no_terminal(
    threaded_broker: ThreadedCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    hostile = json.dumps("x\x1b[2J\nFORGED")
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text(f'{{"id":{hostile}}}')
    (tmp_path / "offsets" / "1").write_text(f'v1\n{{}}\n{{{hostile}:{{"0":1}}}}')
    (tmp_path / "commits" / "1").write_text("v1\n{}")
    given = ["spark", "checkpoint", str(tmp_path), "-b", threaded_broker.bootstrap_servers, option]
    cli.main(given)
    printed = "".join(capsys.readouterr())
    assert printed and all(char.isprintable() or char == "\n" for char in printed)
    assert "\nFORGED" not in printed


def test_offline_it_shows_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"query"}')
    (tmp_path / "offsets" / "0").write_text(
        'v1\n{"batchTimestampMs": 1767225600000, "batchWatermarkMs": 1767225000000}\n{"t":{"0":1}}'
    )
    assert cli.main(["spark", "checkpoint", str(tmp_path), "--offline"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "query      query",
        "planned    batch 0, planned at 2026-01-01T00:00:00+00:00, watermark "
        "2025-12-31T23:50:00+00:00",
        "finished   no batch",
        "ok: batch 0 has not ended; the next run begins with it",
    ]
    assert cli.main(["spark", "checkpoint", "s3a://bucket/checkpoint", "--offline"]) == 1
    assert "copy it here" in capsys.readouterr().err
