"""Compiling what is written in Go. It needs Go 1.26; modules come from where this machine's Go
fetches them, with the sums in ``kfake/go.sum``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_MODULE = Path(__file__).parents[1] / "kfake"
_FRANZ_GO_CLIENT = "github.com/twmb/franz-go/pkg/kgo"
BUILD_TIMEOUT_S = 300


def build_kfake(directory: Path) -> Path:
    """franz-go's fake cluster with our orders, compiled into a directory. Raises
    CalledProcessError; FileNotFoundError without Go.
    """
    return _go(directory / "kfake", "build", ".")


def build_client_tests(directory: Path) -> Path:
    """franz-go's own tests of its client, compiled into a directory. Raises as :func:`build_kfake`
    does.
    """
    return _go(directory / "kgo.test", "test", "-c", _FRANZ_GO_CLIENT)


def _go(program: Path, *command: str) -> Path:
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
    *verb, package = command
    subprocess.run(
        ["go", *verb, "-o", str(program), package],
        cwd=_MODULE,
        env=environment,
        check=True,
        timeout=BUILD_TIMEOUT_S,
    )
    return program
