"""Processes that run a module of the harness, and end with the process that started them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

_REPOSITORY = Path(__file__).parents[3]


class Child:
    """A process that runs ``python -m module argument``; its output goes to a file.

    The module calls `end_with_parent`.
    """

    def __init__(self, module: str, argument: str, log: Path) -> None:
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, argument],
                cwd=_REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    @property
    def runs(self) -> bool:
        """True if the process runs, even frozen."""
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; do nothing if it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it (SIGKILL) and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def terminate(self, timeout_s: float) -> None:
        """Ask it to end (SIGTERM); kill it if it does not end in time."""
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, timeout_s)
        except subprocess.TimeoutExpired:
            pass
        self.kill()


def end_with_parent() -> None:
    """End this process when the process that started it ends, however it does."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    sys.stdin.read()
    os._exit(1)
