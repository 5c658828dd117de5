"""Lets the CPU time of Spark's Python workers be seen after their end. Each Python that has this
directory on PYTHONPATH imports it at its start.

Spark's daemon, which forks the workers, ignores their end, and the kernel then forgets what they
have used. Here it waits for them instead, so that their time becomes that of the daemon's ended
children.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any


def _wait_for_ended_children(number: int, frame: FrameType | None) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # there is none left


def _signal(number: int, handler: Any) -> Any:
    return _set_handler(
        number,
        _wait_for_ended_children
        if (number, handler) == (signal.SIGCHLD, signal.SIG_IGN)
        else handler,
    )


if "pyspark.daemon" in sys.orig_argv:
    _set_handler = signal.signal
    signal.signal = _signal  # type: ignore[assignment]
