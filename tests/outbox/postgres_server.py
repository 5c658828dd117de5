"""A PostgreSQL on a free port, which must be installed: Debian's package ``postgresql``."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_until

_LIMIT_S = 60


class PostgresServer:
    """A server.

    Args:
        folder: for its data; an empty one, that all users can read.
    """

    def __init__(self, folder: str) -> None:
        found = shutil.which("initdb") or next(
            iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)), None
        )
        assert found, "PostgreSQL is not installed: apt-get install postgresql"
        self._programs = Path(os.path.realpath(found)).parent
        self._folder = folder
        self._data = f"{folder}/data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"postgresql://test@127.0.0.1:{self._port}/postgres"
        self._run("initdb", "-U", "test", "-A", "trust", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        user = "postgres" if os.getuid() == 0 else None  # it refuses to run as root
        command = [f"{self._programs}/{program}", "-D", self._data, *arguments]
        with open(f"{self._folder}/log", "ab") as log:
            subprocess.run(
                command,
                user=user,
                cwd=self._folder,
                check=True,
                timeout=_LIMIT_S,
                stdout=log,
                stderr=log,
            )

    def start(self) -> None:
        options = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1"
        self._run("pg_ctl", "-w", "-l", f"{self._data}/log", "-o", options, "start")

    def kill_processes(self) -> None:
        """Kill all of its processes (SIGKILL)."""
        lock = Path(f"{self._data}/postmaster.pid")
        postmaster = int(lock.read_text().split()[0])
        pids = [postmaster, *_children_of(postmaster)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(_runs, pids)), _LIMIT_S)
        # If it became a zombie, the next server would think that it runs.
        lock.unlink()
        Path(f"{self._folder}/.s.PGSQL.{self._port}.lock").unlink()

    def kill(self) -> None:
        """End it as a crash does: without a checkpoint, and with all connections."""
        self._run("pg_ctl", "-m", "immediate", "stop")


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None  # it has ended
    return fields[0], int(fields[1])


def _children_of(parent: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if (found := _state_and_parent(pid)) and found[1] == parent]


def _runs(pid: int) -> bool:
    found = _state_and_parent(pid)
    return found is not None and found[0] not in "XZ"
