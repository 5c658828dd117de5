"""Archives of the classes that a Java program loads (class data sharing, JEP 310), in the user's
cache. A JVM that maps one starts in half the time.

A JVM ignores an archive of another JVM or of other jars, but crashes on a truncated one. The name
of each file therefore contains the SHA-256 checksum of its content, which is verified before use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from aioprod.logs import get_logger
from aioprod.testing.cache import SetupError, cache_dir, locked, sha256_of
from aioprod.testing.java import find_java, home_of

Recorder = Callable[[Path], None]
"""Runs the program so that its JVM lists the loaded classes in this file, in an empty directory.
Raises SetupError.
"""

_DUMP_TIMEOUT_S = 60
_LOCK_TIMEOUT_S = 240
_logger = get_logger(__name__)
_attempted: set[str] = set()


def class_archive(
    name: str, class_path: Sequence[Path], java_options: Sequence[str], record: Recorder
) -> Path | None:
    """Return the class archive ``name`` for these jars and options and for the Java that
    :func:`find_java` finds. If it is missing, create it from the classes that ``record`` lists.

    A new archive replaces those of the same name for another Java or other jars.

    Returns:
        The path, or None if the archive can't be created. A process tries only once.

    Raises:
        SetupError: if Java or the cache directory is not available.
    """
    java = find_java()
    own_classes = home_of(java) / "lib" / "modules"
    good_for = "\n".join([*java_options, *map(_identity, [own_classes, *class_path])])
    stem = f"{name}-{hashlib.sha256(good_for.encode()).hexdigest()[:12]}"
    if (found := _whole(stem)) or stem in _attempted:
        return found
    command = [str(java), *java_options, "-cp", os.pathsep.join(map(str, class_path))]
    try:
        with locked(cache_dir() / f"{name}.jsa.lock", timeout_s=_LOCK_TIMEOUT_S):
            return _whole(stem) or _make(name, stem, command, record)
    except (SetupError, OSError) as error:
        _logger.debug("%s starts without a class archive, which takes longer: %s", name, error)
        return None
    finally:
        _attempted.add(stem)


def _identity(path: Path) -> str:
    """Describe a file so that a replacement is noticed."""
    try:
        state = path.stat()
    except OSError:
        return f"no {path}"
    return f"{path} {state.st_size} {state.st_mtime_ns}"


def _whole(stem: str) -> Path | None:
    """Return the archive with this name whose content matches its checksum."""
    for path in cache_dir().glob(f"{stem}-*.jsa"):
        try:
            if path.stem == f"{stem}-{sha256_of(path)}":
                return path
        except FileNotFoundError:
            pass  # another process has just replaced it
    return None


def _make(name: str, stem: str, command: Sequence[str], record: Recorder) -> Path:
    prefix = f".{name}.jsa-"
    for left in cache_dir().glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)  # left by a killed process: this one has the lock
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=prefix) as temporary:
        classes, made = Path(temporary, "classes"), Path(temporary, "archive")
        record(classes)
        _dump(command, classes, made)
        whole = f"{stem}-{sha256_of(made)}.jsa"
        for old in cache_dir().glob(f"{name}-*.jsa"):
            old.unlink()  # a JVM that has mapped it keeps it
        return made.replace(cache_dir() / whole)


def _dump(command: Sequence[str], classes: Path, archive: Path) -> None:
    dump = [
        "-Xshare:dump",
        f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={archive}",
    ]
    try:
        done = subprocess.run(
            [*command, *dump],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DUMP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"Java did not end within {_DUMP_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise SetupError(
            f"Java failed (exit status {done.returncode}): "
            f"{done.stdout.decode(errors='replace')[-500:]}"
        )
