"""Each fuzz target runs on its seeds, and on random changes of them."""

from __future__ import annotations

import random
import re
import subprocess
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from fuzz.running import mutations
from tests.selection import needs_posix

FUZZ = Path(__file__).parent.parent / "fuzz"
TARGETS = sorted(path.stem for path in FUZZ.glob("fuzz_*.py"))
CHANGED = 2_000


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_finds_nothing(name: str) -> None:
    target = import_module(f"fuzz.{name}")
    seed = random.randrange(1 << 32)
    seeds = target.seeds()
    inputs = islice(mutations(seeds, random.Random(seed)), len(seeds) + CHANGED)
    for number, data in enumerate(inputs):
        try:
            target.TestOneInput(data)
        except Exception as error:
            pytest.fail(f"{name}, seed {seed}, input {number}: {error!r}: {data.hex()}")


def test_the_readme_lists_each_target() -> None:
    rows = re.findall(r"^\| `(fuzz_\w+)` \|", (FUZZ / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == TARGETS


@needs_posix
def test_the_build_script_is_valid() -> None:
    script = FUZZ / "oss-fuzz" / "build.sh"
    assert subprocess.run(["bash", "-n", script], timeout=10, check=False).returncode == 0
