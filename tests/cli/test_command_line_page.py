"""The commands of docs/command-line.md work one after another."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aioprod import cli
from aioprod.cli.command_line import _COMMANDS
from aioprod.testing import ThreadedCluster
from tests.selection import needs_posix

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@needs_posix
def test_the_commands_run_one_after_another(
    threaded_broker: ThreadedCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    servers = threaded_broker.bootstrap_servers
    function = f'aioprod() {{ "{sys.executable}" -m aioprod "$@" -b {servers}; }}'
    for line in "".join(blocks("sh")).splitlines():
        if "|" in line:
            subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", f"{function}\n{line}"],
                timeout=60,
                check=True,
            )
        else:
            program, *arguments = shlex.split(line)
            assert (program, cli.main([*arguments, "-b", servers])) == ("aioprod", 0), line
    assert sorted(threaded_broker.topics) == ["copy", "fruit"]
    (example,) = blocks("json")
    printed = re.sub(r'"timestamp": \d+', '"timestamp": 1767225600000', capfd.readouterr().out)
    assert example.strip() in printed.splitlines()


def test_the_table_has_each_command() -> None:
    table = PAGE.partition("| command | what it does |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name.split()[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert set(_COMMANDS) <= named
