"""tansu, a Kafka-compatible broker in Rust, with its records in memory.

The first start builds it with cargo, in the user's cache directory: about ten minutes.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aioprod.testing.cache import SetupError, cache_dir, locked
from aioprod.testing.kafka_process import free_ports

VERSION: Final = "0.6.0"
_BUILD_LIMIT_S: Final = 3_600
_START_LIMIT_S: Final = 30


def tansu_program() -> Path:
    """Return the path of the program; build it if it is missing.

    Raises:
        SetupError: if it can't be built.
    """
    home = cache_dir() / f"tansu-{VERSION}"
    program = home / "bin" / "tansu"
    with locked(cache_dir() / f"tansu-{VERSION}.lock", timeout_s=2 * _BUILD_LIMIT_S):
        if not program.exists():
            _build(home)
    return program


def _build(home: Path) -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise SetupError("tansu is built with cargo, which is not on PATH: install Rust")
    with tempfile.TemporaryDirectory(prefix="aioprod-tansu-") as target:
        done = subprocess.run(
            [
                *("nice", cargo, "install", "tansu", "--version", VERSION, "--locked", "--debug"),
                *("--no-default-features", "--features", "dynostore"),
                *("--root", str(home), "--target-dir", target),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_LIMIT_S,
            env={**os.environ, "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0"},
            check=False,
        )
    if done.returncode:
        raise SetupError(f"cargo can't build tansu:\n{done.stderr[-3000:]}")


@contextmanager
def running_tansu() -> Iterator[str]:
    """Run a broker, and yield its address."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [
                *(str(tansu_program()), "broker", "--storage-engine", "memory://tansu/"),
                *("--listener-url", f"tcp://{address}"),
                *("--advertised-listener-url", f"tcp://{address}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(port, process)
            yield address
        finally:
            process.kill()
            process.wait(_START_LIMIT_S)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SetupError("tansu did not start") from None
            time.sleep(0.05)
        else:
            return
