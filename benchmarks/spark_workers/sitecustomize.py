"""Count the CPU time of Spark's Python workers. Python imports this module at startup if its
directory is on PYTHONPATH.

Spark's daemon, which forks the workers, ignores SIGCHLD, so the kernel discards their CPU time.
Here it waits for them instead, and their time is added to the daemon's ended children.
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
        pass  # no children left


def _signal(number: int, handler: Any) -> Any:
    return _set_handler(
        number,
        _wait_for_ended_children
        if (number, handler) == (signal.SIGCHLD, signal.SIG_IGN)
        else handler,
    )


if {"pyspark.daemon", "aioprod.spark.worker_daemon"} & {*sys.orig_argv}:
    _set_handler = signal.signal
    signal.signal = _signal  # type: ignore[assignment]
