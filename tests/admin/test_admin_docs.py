"""What docs/admin.md shows works as it stands there, and it names all there is."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aioprod import Admin, cli
from aioprod.testing import EmbeddedCluster, ThreadedCluster

PAGE = (Path(__file__).parent.parent.parent / "docs" / "admin.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_examples_run_one_after_another(broker: EmbeddedCluster) -> None:
    names: dict[str, Any] = {}
    first, *others = blocks("python")
    # The others go on inside the first one's block, where the client is open.
    inner = re.sub("^(?=.)", "    ", "".join(others), flags=re.MULTILINE)
    whole = first.replace("localhost:9092", broker.bootstrap_servers) + inner
    await eval(compile(whole, "docs/admin.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    assert broker.topics["orders"].configs == {
        "retention.ms": "3600000",
        "cleanup.policy": "delete,compact",
    }
    assert len(broker.topics["clicks"].partitions) == 4
    assert list(names["created"].errors) == ["orders"]
    assert names["group"].state == "Empty"


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


def test_every_call_is_named() -> None:
    calls = {name for name in dir(Admin) if not name.startswith("_")} - {
        "start",
        "stop",
        "close",
        "from_config",
    }
    table = PAGE.split("\nNot there:")[0]
    assert calls == set(re.findall(r"`(\w+)`", table)) & calls
