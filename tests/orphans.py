"""Ends the processes that a stopped pytest leaves: real brokers, JVMs, browsers, programs.

A test ends what it started, but no test does so after SIGTERM or SIGKILL, and a fixture may be
interrupted. So each pytest process starts a guard (this file as a program), which waits until that
process has ended, and then kills those whose environment has its token: children inherit it, also
those of a JVM or a shell. Linux only: elsewhere, `/proc` does not show the environment.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Final

VARIABLE: Final = "AIOPROD_TEST_PROCESS"
# A watcher of a real broker removes the broker's data first.
_GRACE_S: Final = 2.0
_LIMIT_S: Final = 20.0
# While a program replaces another in a process (execve), its environment is empty for a moment.
_LOOKS: Final = 2
_started: list[subprocess.Popen[bytes]] = []


def start_guard() -> None:
    """Start the guard of this process, and put the token into its environment."""
    if _started or not hasattr(os, "pidfd_open"):
        return
    token = f"{os.getpid()}-{uuid.uuid4().hex}"
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), token]
    _started.append(
        # Ctrl-C in a terminal does not reach another session.
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    )
    os.environ[VARIABLE] = token


def processes_of(token: str) -> list[int]:
    """Return the processes whose environment has a token."""
    wanted = f"{VARIABLE}={token}".encode()
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            try:
                environment = (directory / "environ").read_bytes()
            except OSError:  # it has ended, or is another user's
                continue
            if wanted in environment.split(b"\0"):
                found.append(int(directory.name))
    return found


def end_all(token: str) -> None:
    """Kill the processes with a token, and those that they start meanwhile."""
    begun, looks = time.monotonic(), 0
    while looks < _LOOKS and time.monotonic() < begun + _LIMIT_S:
        left = processes_of(token)
        looks = 0 if left else looks + 1
        if time.monotonic() >= begun + _GRACE_S:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        time.sleep(0.05)


def main() -> None:
    """Wait for the end of a process, then end those that it left."""
    pid, token = int(sys.argv[1]), sys.argv[2]
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        pass
    else:
        select.select([descriptor], [], [])
    end_all(token)


if __name__ == "__main__":
    main()
