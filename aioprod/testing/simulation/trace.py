"""What happened in a simulation, as a digest and, where asked, as lines of text: two runs that
agree in it went the same way.
"""

from __future__ import annotations

import hashlib
import struct
from zlib import crc32

_EVENT = struct.Struct("<dIIII")


class SimulationError(RuntimeError):
    """The simulated program wants what a simulation does not have, such as threads, or it can't go
    on.
    """


class Trace:
    """Takes note of each thing that happens, with its virtual time.

    Attributes:
        lines: what happened, one line each; None unless they are kept.
    """

    def __init__(self, *, keep_lines: bool = False) -> None:
        self.lines: list[str] | None = [] if keep_lines else None
        self._hash = hashlib.blake2b(digest_size=16)

    def data(self, now: float, link: int, direction: int, data: bytes) -> None:
        """Bytes arrived."""
        self._hash.update(_EVENT.pack(now, link, direction, len(data), crc32(data)))
        if self.lines is not None:
            self.lines.append(
                f"{now:.6f} link {link} {'<' if direction else '>'} {len(data)} bytes "
                f"{crc32(data):08x}"
            )

    def note(self, now: float, text: str) -> None:
        """Something else happened."""
        self._hash.update(f"{now!r} {text}".encode())
        if self.lines is not None:
            self.lines.append(f"{now:.6f} {text}")

    def digest(self) -> str:
        """A sum over everything up to now."""
        return self._hash.hexdigest()
