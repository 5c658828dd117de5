"""The Python processes that Spark reuses for several tasks, plans or commits."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any

# Spark sets this in processes that it reuses.
_REUSED = "SPARK_REUSE_WORKER"
# A write leaves far fewer objects than this; pyarrow and what a first task imports have 18,000.
_MANY_OBJECTS = 2_000
# Frozen objects are never collected, and users' functions run in these processes too.
_MOST_OBJECTS = 300_000
_OPEN_FILES = "/proc/self/fd"

_modules_before = 0
_sockets: dict[int, int] | None = None


def is_reused() -> bool:
    """Return whether Spark started this process and reuses it."""
    return _REUSED in os.environ


def freeze_modules() -> None:
    """Hide the loaded modules from the garbage collector (`gc.freeze`).

    Spark's daemon collects garbage after each use of a process. It takes 45 ms of CPU to traverse
    the objects of loaded modules, which are never garbage, in four processes for each batch that is
    written, and in another four for each batch that is read. Modules are frozen again only after
    the same number of objects has been loaded. Processes that Spark did not start are not changed.
    """
    global _modules_before  # one process, one collector
    if not is_reused() or len(sys.modules) == _modules_before:
        return
    _modules_before = len(sys.modules)
    if len(gc.get_objects()) > _MANY_OBJECTS and gc.get_freeze_count() < _MOST_OBJECTS:
        gc.collect()
        gc.freeze()


def postpone_pandas() -> None:
    """Let pyarrow work without pandas until something else imports pandas.

    pyarrow imports it when it first converts a Python object: 0.3 s of CPU in each new process,
    and neither the source nor the sink uses it. As soon as pandas is imported, for example by a
    user's function, pyarrow's state is the same as in a new process. Processes that Spark did not
    start are not changed.
    """
    if not is_reused() or "pandas" in sys.modules:
        return
    if any(isinstance(finder, _PandasFinder) for finder in sys.meta_path):
        return
    import pyarrow as pa  # type: ignore[import-untyped]

    known = getattr(pa.lib, "_pandas_api", None)
    # Do nothing for versions of pyarrow that can't be made to look again.
    if known is not None and type(known).__init__ is not object.__init__:
        finder = _PandasFinder(known.__init__)
        sys.meta_path.insert(0, finder)
        pa.scalar(0)  # pyarrow looks for pandas once
        finder.is_found = True


class _PandasFinder(MetaPathFinder):
    """Hides pandas from pyarrow's first lookup, and removes itself at the next import of pandas.

    Args:
        look_again: a function that makes pyarrow look for pandas again.
    """

    def __init__(self, look_again: Callable[[], None]) -> None:
        self._look_again = look_again
        self.is_found = False

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            if not self.is_found:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            sys.meta_path.remove(self)
            self._look_again()


class TaskPart:
    """The base class of objects that Spark pickles for its tasks. A task begins with unpickling
    one, which therefore requests the rest of the task immediately.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()


def acknowledge_at_once() -> None:
    """Acknowledge the data that Spark has sent to this process.

    Spark sends a task in two small writes, and the second waits until the first is acknowledged
    (Nagle's algorithm). In a reused process, the kernel delays the acknowledgement by 40 ms to send
    it together with data, but the task sends data only after it has received everything.
    """
    global _sockets  # later, the process also has connections to brokers
    if _sockets is None:
        _sockets = _tcp_sockets() if is_reused() and hasattr(socket, "TCP_QUICKACK") else {}
    for number, inode in _sockets.items():
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.fstat(number).st_ino == inode:
                with socket.socket(fileno=os.dup(number)) as copy:
                    # The kernel delays acknowledgements again when data is sent.
                    copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _tcp_sockets() -> dict[int, int]:
    """Return the inodes of open TCP sockets by file descriptor. No duplicate of them stays open,
    because the owner of a socket closes the connection by closing it.
    """
    found = {}
    with contextlib.suppress(OSError):  # no /proc
        for number in map(int, os.listdir(_OPEN_FILES)):
            with contextlib.suppress(OSError):  # closed meanwhile, like the listing itself
                if not stat.S_ISSOCK(os.fstat(number).st_mode):
                    continue
                with socket.socket(fileno=os.dup(number)) as copy:
                    if copy.family in (socket.AF_INET, socket.AF_INET6):
                        found[number] = os.fstat(number).st_ino
    return found
