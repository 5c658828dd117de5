"""A trace of a simulation: a digest, and optionally lines of text. Equal digests mean that two
runs had the same events.
"""

from __future__ import annotations

import hashlib
import struct
from zlib import crc32

_EVENT = struct.Struct("<dIIII")


class SimulationError(RuntimeError):
    """The program can't continue, or uses something that a simulation lacks, such as threads."""


class Trace:
    """Records each event with its virtual time.

    Attributes:
        lines: the events, one line each; None if they are not kept.
    """

    def __init__(self, *, keep_lines: bool = False) -> None:
        self.lines: list[str] | None = [] if keep_lines else None
        self._hash = hashlib.blake2b(digest_size=16)

    def data(self, now: float, link: int, direction: int, data: bytes) -> None:
        """Record that data was delivered."""
        self._hash.update(_EVENT.pack(now, link, direction, len(data), crc32(data)))
        if self.lines is not None:
            self.lines.append(
                f"{now:.6f} link {link} {'<' if direction else '>'} {len(data)} bytes "
                f"{crc32(data):08x}"
            )

    def note(self, now: float, text: str) -> None:
        """Record any other event."""
        self._hash.update(f"{now!r} {text}".encode())
        if self.lines is not None:
            self.lines.append(f"{now:.6f} {text}")

    def digest(self) -> str:
        """Return the digest of all events so far."""
        return self._hash.hexdigest()
