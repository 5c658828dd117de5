"""SIGTERM and SIGINT during a run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def handled_signals(callback: Callable[[int], None]) -> Iterator[None]:
    """Call ``callback`` with the number of each SIGTERM and SIGINT, instead of what they did.

    Event loops without signals (Windows, other threads than the main one) keep what they do.
    """
    loop = asyncio.get_running_loop()
    before = {}
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        try:
            loop.add_signal_handler(number, callback, number)
        except (NotImplementedError, RuntimeError, ValueError):
            continue
        before[number] = handler
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
