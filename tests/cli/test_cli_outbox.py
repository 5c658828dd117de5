"""``aioprod outbox``."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aioprod import cli
from aioprod.cli import outbox as outbox_command
from aioprod.outbox import Outbox, OutboxRelay, ddl
from aioprod.page_server import Request
from aioprod.testing import ThreadedCluster
from tests.cli.conftest import LIMIT_S, Run
from tests.selection import needs_posix
from tests.waiting import wait_until


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "orders.db")


@pytest.fixture
def database(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ddl("sqlite"))
        yield connection


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ddl("postgresql")),
        (("--dialect", "sqlite"), ddl("sqlite")),
        (("--from", "1"), ddl("postgresql", from_version=1)),
        (("--from", "2", "--to", "1"), ddl("postgresql", from_version=2, to_version=1)),
        (("--debezium",), ddl("postgresql", debezium=True)),
    ],
)
def test_ddl_prints_the_tables(
    arguments: tuple[str, ...], expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["outbox", "ddl", *arguments]) == 0
    assert capfd.readouterr().out == expected


def test_ddl_refuses_unknown_versions(capfd: pytest.CaptureFixture[str]) -> None:
    for arguments, text in (
        (("--from", "99"), "from_version=99: must be from 0 to "),
        (("--dialect", "sqlite", "--debezium"), "needs PostgreSQL"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["outbox", "ddl", *arguments])
        assert ended.value.code == 2 and text in capfd.readouterr().err


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@needs_posix
def test_the_relay_serves_probes_and_metrics(
    threaded_broker: ThreadedCluster, path: str, database: sqlite3.Connection
) -> None:
    with database:
        asyncio.run(Outbox().add(database, "orders", b"apples"))
    command = [sys.executable, "-m", "aioprod", "outbox", "relay", path, "--http", "0"]
    with subprocess.Popen(
        [*command, "-b", threaded_broker.bootstrap_servers], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("probes and metrics: http://127.0.0.1:"), line
            url = line.split()[-1]
            wait_until(lambda: get(f"{url}ready")[0] == 200, LIMIT_S)
            assert json.loads(get(f"{url}healthy")[1]) == {"ready": True, "healthy": True}
            sent = 'kafka_outbox_relay_records_sent_total{relay="default"} 1.0\n'
            wait_until(lambda: sent in get(f"{url}metrics")[1], LIMIT_S)
            assert (
                'kafka_outbox_shard_rows_waiting{relay="default",shard="0"}'
                in (get(f"{url}metrics")[1])
            )
            assert get(f"{url}other")[0] == 404
            with database:
                database.execute("ALTER TABLE aioprod_outbox_member RENAME TO away")
            wait_until(lambda: get(f"{url}ready")[0] == 503, LIMIT_S)
            assert get(f"{url}healthy")[0] == 200  # for a minute
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 130


def test_an_address_that_can_not_be_used(run: Run, path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, errors = run("outbox", "relay", path, "--http", str(port))
    assert status == 1 and f"--http can't listen on 127.0.0.1:{port} " in errors
    status, _, errors = run("outbox", "relay", path, "--http", "x:y")
    assert status == 2 and "--http must be PORT or HOST:PORT" in errors


def test_a_hung_event_loop_is_not_healthy(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(outbox_command, "_PROBE_LIMIT_S", 0.05)
    loop = asyncio.new_event_loop()  # runs nothing
    try:
        relay = OutboxRelay(path)
        reply = outbox_command._probe(relay, loop, "/healthy", Request({}, ""))
    finally:
        loop.close()
    assert reply.status == 503 and b"event loop" in reply.body


@needs_posix
def test_the_relay_sends_rows_until_it_is_ended(
    threaded_broker: ThreadedCluster, path: str, database: sqlite3.Connection
) -> None:
    with database:
        asyncio.run(Outbox().add(database, "orders", b"apples"))
    command = [sys.executable, "-m", "aioprod", "outbox", "relay", path, "--name", "n"]
    with subprocess.Popen(
        [*command, "-b", threaded_broker.bootstrap_servers], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            ends_at = time.monotonic() + LIMIT_S
            while database.execute("SELECT count(*) FROM aioprod_outbox").fetchone() != (0,):
                assert process.poll() is None and time.monotonic() < ends_at
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 130 and "sent 1 row" in errors
    (record,) = threaded_broker.records("orders", committed_only=True)
    assert record.value == b"apples"


def test_a_database_without_the_tables_is_an_error(run: Run, path: str) -> None:
    status, _, errors = run("outbox", "relay", path, "--quiet")
    assert status == 1 and errors == (
        f"aioprod outbox relay: database {path}: no such table: aioprod_outbox_relay; create the "
        "tables with the statements of: aioprod outbox ddl --dialect sqlite\n"
    )


def test_a_password_is_hidden_in_a_file(run: Run, tmp_path: Path) -> None:
    url = "postgresql://shop:secret@127.0.0.1:1/shop"
    status, _, errors = run("outbox", "relay", url, "--quiet")
    assert status == 1 and "see the password" in errors and "secret" not in errors
    (tmp_path / "url").write_text(url + "\n")
    status, _, errors = run("outbox", "relay", f"@{tmp_path / 'url'}", "--quiet")
    assert status == 1 and "password" not in errors and "ConnectionRefusedError" in errors
    status, _, errors = run("outbox", "relay", "@none")
    assert status == 2 and "DATABASE @none: " in errors


def refuse(database: sqlite3.Connection, *ids: int) -> None:
    with database:
        for each in ids:
            asyncio.run(Outbox().add(database, "orders", b"apples", key=b"k\x1b"))
            database.execute(
                "INSERT INTO aioprod_outbox_refused VALUES (?, 'orders', 'key', X'6b', "
                "'RecordTooLargeError: \x1b[31m', 1700000000000, NULL)",
                (each,),
            )


def test_refused_rows_are_shown_retried_and_discarded(
    path: str, database: sqlite3.Connection, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(["outbox", *arguments])
        return status, *capfd.readouterr()

    status, output, _ = run("status", path)
    assert status == 0 and output == "0 rows wait; Kafka refused 0\n"
    assert run("refused", path)[:2] == (0, "")
    with database:
        database.execute(
            "INSERT INTO aioprod_outbox_relay VALUES ('n', 0, 1, 'i', 'me', 1, 0, 0, '')"
        )
    refuse(database, 1, 2, 3)
    status, output, _ = run("status", path)
    assert status == 0 and output.startswith("3 rows wait, the oldest for ")
    assert "Kafka refused 3\nSHARD  RELAY  ROWS  OLDEST_AGE_MS\n0      -      3     " in output
    status, output, _ = run("status", path, "--json")
    assert status == 0 and json.loads(output)["shards"][0]["owner"] is None
    status, output, _ = run("refused", path)
    assert "\x1b" not in output and "\n2   orders  k\\x1b  2023-11-14T22:13:20+00:00  key" in output
    status, output, _ = run("refused", path, "--json")
    assert [each["id"] for each in json.loads(output)] == [1, 2, 3]
    assert run("retry", path)[0] == run("retry", path, "1", "--all")[0] == 2
    status, _, errors = run("retry", path, "1", "9")
    assert status == 1 and "1 row will be sent again" in errors and "row 9 is not ref" in errors
    status, output, errors = run("discard", path, "2", "--dry-run")
    assert status == 0 and "orders" in output and "dry run" in errors
    assert run("discard", path, "2")[0] == 2  # no terminal
    status, _, errors = run("discard", path, "2", "1", "--yes")
    assert status == 1 and "discarded 1 row" in errors and "row 1 is not refused" in errors
    assert run("retry", path, "--all")[0] == 0
    assert database.execute("SELECT id FROM aioprod_outbox").fetchall() == [(1,), (3,)]
    assert database.execute("SELECT id FROM aioprod_outbox_refused").fetchall() == []


def test_a_setting_of_another_client_is_refused(run: Run, path: str) -> None:
    status, _, errors = run("outbox", "relay", path, "-X", "linger.ms=5")
    assert status == 2 and "linger" in errors
