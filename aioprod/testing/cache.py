"""The user's cache directory, for files that are fetched or made once and used in all runs."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class SetupError(RuntimeError):
    """Java, the jars or a real broker are not available. The message lists what was tried and what
    to install.
    """


def cache_dir() -> Path:
    """Return the directory ``aioprod`` in ``XDG_CACHE_HOME`` or in ``~/.cache``, and create it if
    it is missing.

    Raises:
        SetupError: if it can't be created or written.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore relative paths.
    path = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "aioprod"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cannot make the cache directory {path} ({error.strerror}); set XDG_CACHE_HOME "
            "to a writable directory"
        ) from error
    if not os.access(path, os.W_OK):
        raise SetupError(
            f"the cache directory {path} is not writable; set XDG_CACHE_HOME to a writable "
            "directory"
        )
    return path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 sum of a file's content in hexadecimal. Raise FileNotFoundError if it is
    missing.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Lock the file ``path`` against other processes and threads. The lock is released when the
    process that has it dies.

    On Windows this does nothing: the protected operations must be atomic in any case.

    Raises:
        SetupError: if the lock is not free within ``timeout_s`` seconds.
    """
    with path.open("ab") as file:
        if sys.platform != "win32":
            _acquire(file.fileno(), path, timeout_s)
        yield


def _acquire(descriptor: int, path: Path, timeout_s: float) -> None:
    if sys.platform == "win32":
        return
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise SetupError(
                    f"another process has had the lock {path} for more than {timeout_s:g} s"
                ) from None
            time.sleep(0.1)
