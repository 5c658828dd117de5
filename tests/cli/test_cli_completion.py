"""``aioprod completion``: what real shells complete."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aioprod import TopicPartition, cli
from aioprod.admin import Admin
from aioprod.cli.command_line import command_parser
from aioprod.testing import ThreadedCluster

LIMIT_S = 30
SHELLS = ("bash", "zsh", "fish")
# How each shell is asked for the completions of the last word.
ASK = {
    "bash": "COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE={line}; "
    "COMP_POINT=${{#COMP_LINE}}; _aioprod; "
    "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
    "zsh": "_describe() {{ print -l -- ${{found%%:*}} }}; compadd() {{ shift; print -l -- $@ }}; "
    "_files() {{ print -l -- *(N) }}; words=({words}); CURRENT=$#words; _aioprod",
    "fish": "complete -C {line}",
}


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if shutil.which(name) is None and name != "bash":
        pytest.skip(f"{name} is not installed")
    return name


Complete = Callable[..., set[str]]

# Options and arguments that take any text; all others have choices, or a type that checks them.
ANY_TEXT = {
    *(
        "--bootstrap-servers",
        "--delegation-token",
        "--error",
        "--format",
        "--group",
        "--host",
        "--http",
    ),
    *(
        "--key",
        "--key-subject",
        "--line",
        "--profile",
        "--to-profile",
        "--original-topic",
        "--owner",
        "--page",
        "--prefix",
        "--principal",
        "--registry",
        "--renewer",
    ),
    *("--subject", "--super-user", "--to-bootstrap-servers", "--to-topic", "--topic"),
    *("--topic-prefix", "--transactional-id", "--transactional-id-prefix", "--txn-app-id"),
    *("--unset", "--user", "--name", "DATABASE", "DIR", "GROUP", "TOKEN", "TOPIC", "USER"),
}
CHECKED_BY_THE_BROKER = {"--imitate", "--mechanism"}  # of `aioprod broker`


@pytest.fixture
def complete(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complete:
    """Returns what the shell offers for a line, of which the last word may be empty."""
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in ("settings.properties", "set of settings"):
        (tmp_path / name).touch()
    if shell == "zsh":
        script = f"compdef() {{ }}\n{script}"
    program = tmp_path / "bin" / "aioprod"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aioprod "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"

    def ask(*words: str) -> set[str]:
        quoted = " ".join(f"'{word}'" for word in ("aioprod", *words))
        line = "'" + " ".join(("aioprod", *words)) + "'"
        answer = subprocess.run(
            [shell, "-c", f"{script}\n{ASK[shell].format(words=quoted, line=line)}"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            timeout=LIMIT_S,
            check=False,
        )
        assert answer.stderr == ""
        found = {text.partition("\t")[0] for text in answer.stdout.splitlines()} - {""}
        return {text for text in found if text.startswith(words[-1])}

    return ask


def test_commands_options_and_values(complete: Complete) -> None:
    assert complete("to") == {"topics", "top", "tokens"}
    assert complete("topics", "de") == {"describe", "delete", "delete-records"}
    assert complete("topics", "create", "--rep") == {"--replication-factor"}
    assert complete("produce", "orders", "--format", "") == {"value", "json"}
    assert complete("topics", "list", "--config-f") == {"--config-file"}
    assert complete("topics", "list", "--config-file", "set") == {
        "settings.properties",
        "set of settings",
    }
    assert complete("consume", "orders", "--count", "") == set()
    assert complete("completion", "") >= set(SHELLS)
    # A value is not taken for a command.
    assert "--to-topic" in complete("copy", "topics", "--to-t")
    assert complete("consume", "topics", "cr") == set()
    assert complete("-") == {"-h", "--help", "-V", "--version"}


def test_all_commands_and_options_are_offered(complete: Complete) -> None:
    count = 0
    for words, parser in commands(command_parser()):
        offered = complete(*words, "-") if words else set()
        for action in parser._actions:
            for name in action.option_strings if words else ():
                assert name in offered, (words, name)
                count += 1
    assert count > 150


def test_names_of_topics_groups_and_profiles(
    complete: Complete,
    threaded_broker: ThreadedCluster,
    config_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that a shell would execute is a name, and nothing more."""
    hostile = "o$(touch executed)`touch executed`;'\""
    threaded_broker.create_topic("orders", 1)
    threaded_broker.create_topic("odd-jobs", 1)
    threaded_broker.create_topic("clicks", 1)

    async def fill() -> None:
        async with Admin(threaded_broker.bootstrap_servers) as admin:
            for name in ("billing", hostile, "bad\x1b[2J"):
                await admin.alter_consumer_group_offsets(name, {TopicPartition("orders", 0): 0})

    def names(*words: str) -> set[str]:
        """Try again if nothing is found: a busy machine may take longer than the limit."""
        return next((found for _ in range(20) if (found := complete(*words))), set())

    asyncio.run(fill())
    config_home.mkdir(parents=True)
    (config_home / "profiles.properties").write_text(
        f"[mine]\nbootstrap.servers={threaded_broker.bootstrap_servers}\n"
    )
    assert complete("topics", "list", "--profile", "") == {"mine"}
    here = ("--profile", "mine")
    assert names("consume", *here, "o") == {"orders", "odd-jobs"}
    monkeypatch.setenv("AIOPROD_BOOTSTRAP_SERVERS", threaded_broker.bootstrap_servers)
    assert names("groups", "lag", "--topic", "c") == {"clicks"}
    assert names("consume", "orders", "--group", "bi") == {"billing"}
    found = {name for name in names("groups", "delete", "") if not name.startswith("-")}
    assert len(found) == 2 and "billing" in found
    assert complete("topics", "create", "o") == set(), "a new topic has a new name"
    assert "--exit" in complete("consume", "--e")
    assert not (tmp_path / "executed").exists()


def test_names_take_two_seconds_at_most_and_errors_are_silent(tmp_path: Path) -> None:
    slow = tmp_path / "sitecustomize.py"
    slow.write_text("import socket, time\nsocket.getaddrinfo = lambda *a, **k: time.sleep(60)\n")
    for words in ("-b slow-name:9092", "-b 127.0.0.1:1", "-b", "-X no-setting", "--profile x"):
        line = f"aioprod {words}".replace(" ", "\n")
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "aioprod", "completion", "--names", "topics", "--line", line],
            capture_output=True,
            timeout=LIMIT_S,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), line
        assert time.monotonic() - began < LIMIT_S / 2


def commands(
    parser: argparse.ArgumentParser, *words: str
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from commands(below, *words, name)


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["completion", "tcsh"])
    assert "tcsh" in capsys.readouterr().err


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from actions_of(below)
        else:
            yield action


def test_an_option_that_takes_some_words_only_has_choices() -> None:
    found = {
        action.option_strings[-1] if action.option_strings else str(action.metavar)
        for action in actions_of(command_parser())
        if action.nargs != 0 and action.choices is None and action.type is None
    }
    assert found == ANY_TEXT | CHECKED_BY_THE_BROKER
