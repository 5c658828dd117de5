"""Compile Go programs. Requires Go 1.26; Go downloads the modules and checks them against
``kfake/go.sum``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_MODULE = Path(__file__).parents[1] / "kfake"
_FRANZ_GO_CLIENT = "github.com/twmb/franz-go/pkg/kgo"
BUILD_TIMEOUT_S = 300


def build_kfake(directory: Path) -> Path:
    """Compile franz-go's fake cluster and return the program.

    Raises:
        CalledProcessError: if the compilation fails.
        FileNotFoundError: if Go is not installed.
    """
    return _go(directory / "kfake", "build", ".")


def build_client_tests(directory: Path) -> Path:
    """Compile franz-go's tests of its client and return the program.

    Raises the same errors as :func:`build_kfake`.
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
