"""``--version`` and ``--help`` of each command: versions, options, and examples that run."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioprod
from aioprod import Producer, ProducerRecord, TopicPartition, cli, native
from aioprod.admin import Admin
from aioprod.cli.command_line import command_parser
from aioprod.cli.examples import EXAMPLES
from aioprod.testing import Authorizer, EmbeddedCluster
from tests.cli.conftest import Ended


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_says_whether_the_accelerator_is_in_use(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([option])
    begin = f"aioprod {aioprod.__version__} ({'native' if native.in_use else 'pure Python: '}"
    printed = capsys.readouterr().out
    assert printed.startswith(begin) and platform.python_version() in printed


def test_the_version_in_pure_python() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aioprod", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "AIOPROD_PURE": "1"},
        check=True,
    )
    assert "(pure Python: AIOPROD_PURE is set)" in done.stdout


# Examples that go on until Ctrl-C, ask for a password, or need more than the embedded broker.
NOT_RUN = re.compile(
    r"aioprod (broker|demo|outbox (relay|status|refused|retry|discard)|spark|tokens|top$|"
    r"groups lag --watch|users add alice$)|old:9092|--profile|kafka-1:9092"
)


def parsers(
    parser: argparse.ArgumentParser, name: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name.strip(), parser
    for each in parser._actions:
        if isinstance(each, argparse._SubParsersAction):
            for word, below in each.choices.items():
                yield from parsers(below, f"{name} {word}")


def arguments_of(line: str) -> list[str]:
    """Return the arguments of aioprod in a line for a shell."""
    found = re.search(r"aioprod ([^|<>]*)", line)
    assert found is not None, line
    return shlex.split(found[1].rstrip(" )"))


def test_each_command_has_examples_of_its_own_in_its_help() -> None:
    whole = command_parser()
    named = dict(parsers(whole))
    assert set(EXAMPLES) == set(named)
    for name, lines in EXAMPLES.items():
        assert named[name].format_help().endswith("".join(f"  {line}\n" for line in lines))
        assert all(f"aioprod {name}".strip() in line for line in lines)
        assert max(map(len, lines)) <= 98
        for line in lines:
            whole.parse_args(arguments_of(line))


def test_the_examples_run_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alice.password").write_text("secret\n")
    authorizer = Authorizer(super_users=["User:ANONYMOUS"])
    ran = 0
    with EmbeddedCluster.in_thread(authorizer=authorizer) as broker:
        for topic in ("orders", "orders.dead"):
            broker.create_topic(topic, 2)
        asyncio.run(_fill(broker.bootstrap_servers))
        monkeypatch.setenv("AIOPROD_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        for line in (line for lines in EXAMPLES.values() for line in lines):
            if NOT_RUN.search(line):
                continue
            ran += 1
            before = re.match(r"echo '(.*)' \| aioprod", line)
            given = (
                '{"value": 1}\nnot JSON\n' if "<" in line else before[1] + "\n" if before else ""
            )
            ended = _run(monkeypatch, capfd, given, line)
            assert ended.status == 0, (line, ended)
            assert not re.search("error|failed", ended.errors), (line, ended)
    assert ran > 45


async def _fill(servers: str) -> None:
    async with Producer(servers) as producer:
        await (await producer.send_many("orders", [b"pear"] * 20)).wait()
        headers = [("aioprod.original-topic", b"orders")]
        dead = [ProducerRecord("orders.dead", b"pear", partition=0, headers=headers)]
        await (await producer.send_many("orders.dead", dead)).wait()
    async with Admin(servers) as admin:
        offsets = {TopicPartition("orders", number): 1 for number in range(2)}
        await admin.alter_consumer_group_offsets("billing", offsets)


def _run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], given: str, line: str
) -> Ended:
    source, sink = os.pipe()
    os.write(sink, given.encode())
    os.close(sink)
    with open(source) as reader:
        monkeypatch.setattr("sys.stdin", reader)
        status = cli.main(arguments_of(line))
    return Ended(status, *capfd.readouterr())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["groups", "reset-offsets", "g", "--to-latest", "--execute"], "--yes"),
        (["topics", "delete", "orders", "--force"], "--yes"),
        (["topics", "create", "orders", "--validate-only"], "--dry-run"),
        (["topics", "list", "--command-config", "f"], "--config-file"),
        (["consume", "orders", "--max-messages", "5"], "--count"),
        (["consume", "orders", "--bootstrap-server", "a:1"], "--bootstrap-servers"),
    ],
    ids=lambda part: part[-1] if isinstance(part, list) else part,
)
def test_options_of_other_tools_lead_to_ours(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert f"did you mean {hint}?" in capsys.readouterr().err
