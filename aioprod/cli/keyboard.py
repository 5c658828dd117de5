"""Keys that the user presses while a command runs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_NAMES = {
    b"q": "quit",
    b"Q": "quit",
    b"k": "up",
    b"\x1b[A": "up",
    b"j": "down",
    b"\x1b[B": "down",
    b"\x1b[5~": "page up",
    b"b": "page up",
    b"\x1b[6~": "page down",
    b" ": "page down",
    b"g": "home",
    b"\x1b[H": "home",
    b"\x1b[1~": "home",
    b"\x1b[7~": "home",
    b"G": "end",
    b"\x1b[F": "end",
    b"\x1b[4~": "end",
    b"\x1b[8~": "end",
}
_KEY = re.compile(rb"\x1b[\[O][0-9;]{0,16}[A-Za-z~]|[^\x1b]", re.DOTALL)
_PART = re.compile(rb"\x1b(?:[\[O][0-9;]{0,16})?\Z")


class Keys:
    """Recognizes keys in the bytes that a terminal sends."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, data: bytes) -> list[str]:
        """Return the names of the keys that ``data`` completes; unknown keys are left out."""
        data = self._rest + data
        part = _PART.search(data)
        self._rest = part.group() if part is not None else b""
        whole = data[: part.start()] if part is not None else data
        found = (key.replace(b"\x1bO", b"\x1b[") for key in _KEY.findall(whole))
        return [_NAMES[key] for key in found if key in _NAMES]


def has_keyboard() -> bool:
    """Return whether standard input is a terminal that can be read key by key."""
    return sys.stdin is not None and sys.stdin.isatty() and os.name == "posix"


@contextmanager
def keyboard(pressed: Callable[[str], object]) -> Iterator[None]:
    """Call ``pressed`` with the name of each known key. Ctrl-C works as before."""
    import termios
    import tty

    source = sys.stdin.fileno()
    before = termios.tcgetattr(source)
    keys = Keys()
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            data = os.read(source, 1024)
        except OSError:
            data = b""
        if not data:  # the terminal was closed
            loop.remove_reader(source)
        for key in keys.add(data):
            pressed(key)

    tty.setcbreak(source)
    loop.add_reader(source, read)
    try:
        yield
    finally:
        loop.remove_reader(source)
        termios.tcsetattr(source, termios.TCSAFLUSH, before)
