"""Tracebacks and warnings of Python in the logs of a life, and who has printed them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import aioprod

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "([^"]+)", line \d+, in ')
# What Python itself prints of objects and tasks that were left behind.
_LEFT_BEHIND = re.compile(
    r"never retrieved|was never awaited|Exception ignored in|Unclosed|ResourceWarning|"
    r"Task was destroyed|exception in callback",
    re.IGNORECASE,
)
_AIOPROD = str(Path(aioprod.__file__).parent)


@dataclass(frozen=True)
class Traceback:
    """A traceback, or another report of an error, in the output of a process.

    Attributes:
        kind: ``raised in FILE``, or what Python calls it.
        error: the last line of a traceback.
        ours: raised by aioprod and not by Spark's code, or left behind.
        text: all of it, with three lines before.
        left_behind: Python's word on an object that nothing waits for any more.
    """

    kind: str
    error: str
    ours: bool
    text: str
    left_behind: bool = False


def tracebacks(logs: Iterable[Path]) -> list[Traceback]:
    """Find all."""
    return [found for log in logs for found in in_text(log.read_text(errors="replace"))]


def in_text(text: str) -> list[Traceback]:
    """Find those of one log."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        before = max(0, number - 3)
        if line.strip().endswith(_BEGIN):
            end = number + 1
            while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
                end += 1
            frames = [match[1] for each in lines[number:end] if (match := _FRAME.match(each))]
            place = frames[-1] if frames else "?"
            error = lines[end] if end < len(lines) else ""
            found.append(
                Traceback(
                    f"raised in {Path(place).name}",
                    error[:160],
                    place.startswith(_AIOPROD),
                    "\n".join(lines[before : end + 1]),
                )
            )
        elif left := _LEFT_BEHIND.search(line):
            found.append(
                Traceback(left[0], line[:160], True, "\n".join(lines[before : number + 8]), True)
            )
    return found
