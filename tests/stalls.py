"""Stalls of the whole process, as on a machine whose processors others use: ``--stalls MS``.

A test with a limit of milliseconds in real time fails with them, at the latest on a busy machine.
Such a test belongs in virtual time (marker ``virtual_time``), or its limit must only be reached by
what the test blocks.
"""

from __future__ import annotations

import ctypes
import random
import threading
import time


def start(longest_ms: float) -> None:
    """From now on, let no thread run for half to all of ``longest_ms``, over and over, after pauses
    of at most ``longest_ms``.

    The threads of other processes and of C libraries go on.
    """
    usleep = ctypes.PyDLL(None).usleep  # PyDLL's functions keep the GIL
    usleep.argtypes = (ctypes.c_uint,)
    sleep = time.sleep  # which tests patch
    chance = random.Random()

    def stall() -> None:
        while True:
            sleep(chance.uniform(0, longest_ms / 1_000))
            usleep(int(chance.uniform(0.5, 1) * longest_ms * 1_000))

    threading.Thread(target=stall, name="stalls", daemon=True).start()
