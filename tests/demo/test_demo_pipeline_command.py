"""The pipeline's command line; its runs by ``spark-submit`` are in
tests/demo/test_demo_cluster.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.errors import AnalysisException

from aioprod.demo.pipeline import PipelineOptions, PipelineResult, read_records
from aioprod.demo.pipeline import __main__ as command
from aioprod.spark import QueryProgress
from aioprod.spark.source_options import parse_source_options
from tests.spark.page_progress import batch, rejected
from tests.spark.test_alerts import Receiver
from tests.spark.test_alerts import receiver as receiver

NEEDED = [
    "--bootstrap-servers",
    "h:1",
    "--out",
    "s3a://b/out/",
    "--checkpoint",
    "s3a://b/checkpoint",
]
RESULT = PipelineResult(1_005, 3, 2, [], [], "s3a://b/out/delays", "s3a://b/out/routes")


class Session:
    """Stands in for Spark: what the command asks of it, and what the pipeline is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spark = MagicMock()
        self.spark.sparkContext.getConf().contains.return_value = False
        self.spark.sparkContext.defaultParallelism = 6
        self.spark.sparkContext.uiWebUrl = None
        self.builder = MagicMock()
        self.builder().getOrCreate.return_value = self.spark
        self.given: dict[str, Any] = {}
        self.outcome: BaseException | PipelineResult = RESULT
        self.batches: list[QueryProgress] = []
        self.while_it_runs: Callable[[], None] | None = None
        monkeypatch.setattr(command, "spark_session_builder", self.builder)
        monkeypatch.setattr(command, "run_pipeline", self._run)

    def _run(self, spark: object, options: PipelineOptions, **rest: Any) -> PipelineResult:
        self.given = {"options": options, **rest}
        for progress in self.batches:
            rest["on_progress"](progress)
        if self.while_it_runs is not None:
            self.while_it_runs()
        if rest["follow"]:
            os.kill(os.getpid(), signal.SIGTERM)
            assert rest["stop"].wait(10)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    return Session(monkeypatch)


def test_what_a_producer_has_aborted_is_not_read() -> None:
    spark = MagicMock()
    read_records(spark, PipelineOptions(bootstrap_servers="h:1", out_dir="o", checkpoint_dir="c"))
    given = spark.readStream.format("aioprod").options.call_args.kwargs
    assert given["kafka.isolation.level"] == "read_committed"
    parse_source_options(given, streaming=True)


@pytest.mark.parametrize(("more", "short"), [((), None), (("--follow",), False)])
def test_java_is_set_up_for_short_runs_unless_it_follows(
    session: Session, more: tuple[str, ...], short: bool | None
) -> None:
    assert command.main([*NEEDED, *more]) == 0
    assert session.builder.call_args.kwargs["short_run"] is short


def test_options_reach_the_pipeline(session: Session) -> None:
    more = [
        "--topic",
        "f",
        "--kafka",
        "security.protocol=SSL",
        "--kafka",
        "kafka.client.id=a=b",
        "--max-offsets-per-trigger",
        "0",
    ]
    assert command.main([*NEEDED, *more]) == 0
    assert session.given["options"] == PipelineOptions(
        bootstrap_servers="h:1",
        out_dir="s3a://b/out",
        checkpoint_dir="s3a://b/checkpoint",
        topic="f",
        max_offsets_per_trigger=None,
        kafka={"kafka.security.protocol": "SSL", "kafka.client.id": "a=b"},
    )
    assert session.given["options"].dead_letters == "f.dead-letters"
    session.spark.stop.assert_called_once()


def test_passwords_come_from_a_file_and_are_warned_of_on_the_command_line(
    session: Session,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# a comment\nsasl.password=hunter2\nkafka.client.id=file\n")
    named = ["--kafka-file", str(file)]
    assert command.main([*NEEDED, *named, "--kafka", "client.id=line"]) == 0
    expected = {"kafka.sasl.password": "hunter2", "kafka.client.id": "line"}
    assert session.given["options"].kafka == expected
    assert caplog.messages == []
    assert command.main([*NEEDED, "--kafka", "sasl.password=hunter2"]) == 0
    warned = "--kafka sasl.password: all users of this machine can see it in the process list"
    assert [text.partition(";")[0] for text in caplog.messages] == [warned]
    assert caplog.messages[0].endswith("use a file with --kafka-file")
    file.write_text("hunter2\n")
    with pytest.raises(SystemExit):
        command.main([*NEEDED, *named])
    output, errors = capsys.readouterr()
    assert "line 1 of --kafka-file" in errors and "hunter2" not in output + errors + caplog.text


def test_spark_submits_master_is_kept_and_its_shuffle_partitions_too(session: Session) -> None:
    assert command.main(NEEDED) == 0
    assert session.builder.call_args.args == (None,)
    session.spark.conf.set.assert_called_once_with("spark.sql.shuffle.partitions", "6")
    session.spark.sparkContext.getConf().contains.return_value = True
    assert command.main([*NEEDED, "--master", "local[2]"]) == 0
    assert session.builder.call_args.args == ("local[2]",)
    session.spark.conf.set.assert_called_once()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            TimeoutError("the pipeline did not end within timeout_s=1"),
            "the pipeline did not end within timeout_s=1",
        ),
        (
            AnalysisException(": a.B: c\n\tat x\nCaused by: d.E: disk full\n\tat y"),
            "d.E: disk full",
        ),
    ],
)
def test_a_failure_is_one_line(
    session: Session, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    session.outcome = error
    assert command.main(NEEDED) == 1
    assert capsys.readouterr().err == f"aioprod.demo.pipeline: {said}\n"
    session.spark.stop.assert_called_once()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (NEEDED[2:], "--bootstrap-servers"),
        ([*NEEDED, "--kafka", "acks"], "must be NAME=VALUE"),
        ([*NEEDED, "--progress", "loud"], "loud"),
        ([*NEEDED, "--page", "here"], "--page: must be PORT or HOST:PORT"),
        ([*NEEDED, "--webhook", "hooks.example.org"], "--webhook: must be an address http://"),
        ([*NEEDED, "--webhook-file", "/none"], "--webhook-file: can't read /none"),
        ([*NEEDED, "--max-lag", "-1"], "--max-lag"),
    ],
)
def test_wrong_usage_is_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as raised:
        command.main(arguments)
    assert raised.value.code == 2
    assert said in capsys.readouterr().err


def test_the_summary_is_for_people_or_for_programs(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(NEEDED) == 0
    assert (
        "1,005 records read, 3 of them dead letters, 2 events dropped as late"
        in capsys.readouterr().out
    )
    assert command.main([*NEEDED, "--progress", "json"]) == 0
    paths = {"delays_path": "s3a://b/out/delays", "routes_path": "s3a://b/out/routes"}
    assert json.loads(capsys.readouterr().out) == {
        "rows_read": 1_005,
        "dead_letters": 3,
        "late": 2,
        **paths,
    }


def test_sigterm_ends_a_run_that_follows_in_order(session: Session) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert command.main([*NEEDED, "--follow"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_ends_a_run_that_does_not_follow(session: Session) -> None:
    session.outcome = KeyboardInterrupt()
    assert command.main(NEEDED) == command.INTERRUPTED


# -- watching a run --------------------------------------------------------------------------------


def test_the_page_has_the_numbers_of_the_run(
    session: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    seen: dict[str, Any] = {}

    def look() -> None:
        address = re.search(r"the page is (http://127\.0\.0\.1:\d+/)\n", capsys.readouterr().err)
        assert address is not None
        with urllib.request.urlopen(f"{address[1]}data.json", timeout=10) as answer:
            seen.update(json.load(answer))

    session.batches, session.while_it_runs = [batch(0), batch(1), rejected(0)], look
    assert command.main([*NEEDED, "--page", "--max-lag", "50"]) == 0
    assert (seen["title"], seen["state"], seen["lag_limit"]) == (
        "pipeline of flights",
        "running",
        50,
    )
    assert [query["rows_total"] for query in seen["queries"]] == [1_000, 2_000]


def test_a_port_that_is_taken_ends_the_command_before_spark_starts(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert command.main([*NEEDED, "--page", str(port)]) == 1
    text = capsys.readouterr().err
    assert f"aioprod.demo.pipeline: can't listen on 127.0.0.1:{port}" in text
    assert session.given == {}


def test_a_failure_is_sent(session: Session, receiver: Receiver, tmp_path: Path) -> None:
    session.outcome = AnalysisException(": a.B: c\nCaused by: d.E: disk full")
    assert command.main([*NEEDED, "--webhook", receiver.url]) == 1
    file = tmp_path / "webhook"
    file.write_text(f"{receiver.url}\n")
    assert command.main([*NEEDED, "--webhook-file", str(file)]) == 1
    assert [(each["alert"], each["text"]) for each in receiver.received] == [
        ("failed", "pipeline of flights has failed: d.E: disk full")
    ] * 2


def test_limits_are_alerts_and_an_exit_status(
    session: Session, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    session.batches = [batch(0, lag=500), rejected(0, count=4, lag=0)]
    limits = ["--max-lag", "400", "--max-dead-letters", "3", "--webhook", receiver.url]
    assert command.main([*NEEDED, *limits]) == 3
    assert [each["alert"] for each in receiver.received] == ["lag", "dead-letters"]
    assert [line for line in capsys.readouterr().err.splitlines() if "more than" in line] == [
        "aioprod.demo.pipeline: flights: delays: the lag is 500 records, more than 400",
        "aioprod.demo.pipeline: flights: dead letters: 4 dead letters in this run, more than 3",
    ]
    session.batches += [batch(1, lag=0)]
    assert command.main([*NEEDED, "--max-lag", "400", "--max-dead-letters", "4"]) == 0
