"""Writes the seeds of each target to a folder: ``python -m fuzz.write_seeds DIRECTORY``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from fuzz.running import write_seeds


def main() -> None:
    for path in sorted(Path(__file__).parent.glob("fuzz_*.py")):
        write_seeds(import_module(f"fuzz.{path.stem}").seeds(), Path(sys.argv[1], path.stem))


if __name__ == "__main__":
    main()
