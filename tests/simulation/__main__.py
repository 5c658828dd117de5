"""Run the simulation: ``python -m tests.simulation --seeds A-B``. See docs/testing-aioprod.md."""

from __future__ import annotations

import sys

from tests.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
