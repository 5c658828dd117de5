"""The examples in docs/admin.md work, and the page lists all methods."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from aioprod import Admin
from aioprod.testing import EmbeddedCluster

PAGE = (Path(__file__).parent.parent.parent / "docs" / "admin.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_examples_run_one_after_another(broker: EmbeddedCluster) -> None:
    names: dict[str, Any] = {}
    namespace: dict[str, Any] = {"names": names}
    first, *others = blocks("python")
    # The others continue in the first one's coroutine, where the client is open.
    program, run, nothing = first.rpartition("\n\nuvloop.run(main())\n")
    assert run and not nothing
    others.append("names.update(locals())\n")
    inner = re.sub("^(?=.)", "        ", "".join(others), flags=re.MULTILINE)
    whole = program.replace("localhost:9092", broker.bootstrap_servers) + inner
    exec(compile(whole, "docs/admin.md", "exec"), namespace)
    await namespace["main"]()
    assert broker.topics["orders"].configs == {
        "retention.ms": "3600000",
        "cleanup.policy": "delete,compact",
    }
    assert len(broker.topics["clicks"].partitions) == 4
    assert list(names["created"].errors) == ["orders"]
    assert names["group"].state == "Empty"


def test_every_call_is_named() -> None:
    calls = {name for name in dir(Admin("localhost")) if not name.startswith("_")} - {
        *("start", "stop", "close", "config", "from_config"),
    }
    table = PAGE.split("\nNot there:")[0]
    assert calls == set(re.findall(r"`(\w+)`", table)) & calls
