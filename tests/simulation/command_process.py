"""Runs the command of the simulation in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

_LIMIT_SECONDS = 110


def run_command(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the command; ``hash_seed`` decides about the order of sets."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
    )
