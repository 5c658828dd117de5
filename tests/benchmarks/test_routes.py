"""The routes through the source are found, and what is counted on them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.routes import ROUTES, Route

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def test_moves_files_and_returns() -> None:
    route = Route([("a.py", "f"), ("a.py", "g"), ("b.py", "f"), ("a.py", "f"), ("c.py", "f")])
    assert route.path == ["a.py", "b.py", "a.py", "c.py"]
    assert (route.moves, route.files, route.returns) == (4, 3, 1)
    assert route.since(("b.py", "f")).path == ["b.py", "a.py", "c.py"]


def test_each_route_is_found() -> None:
    """The fast ones stay short, no route passes through the broker or the simulation, and the page
    has the numbers of the slow one.
    """
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.routes", "--json"],
        env={**os.environ, "AIOPROD_PURE": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = json.loads(printed)
    assert paths.keys() == ROUTES.keys()
    assert paths["prepared getone"] == ["consumer/consumer.py"]
    assert paths["fast send"][:2] == ["producer/producer.py", "producer/fast_path.py"]
    assert len(paths["fast send"]) == len(set(paths["fast send"]))
    assert paths["send that opens a batch"][-1] == "producer/delivery.py"
    assert "producer/sender.py" in paths["sender to acknowledgement"]
    assert "producer/outcomes.py" in paths["refused Produce"]
    assert not [file for path in paths.values() for file in path if file.startswith("testing/")]
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    written = re.search(r"files on the path: (\d+), with (\d+) returns", page)
    slow = paths["slow send"]
    assert written is not None
    assert written.groups() == (str(len(set(slow))), str(len(slow) - len(set(slow))))
