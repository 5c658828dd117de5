"""CPU time of a process and its descendants (Linux)."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

# Fields after the process name: the parent's id; the CPU time in user and kernel mode, first of the
# process, then of its ended children.
_PARENT, _TIMES = 1, slice(11, 15)


def tree_cpu_s(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of a running process and of its descendants, including ended ones.

    Measure the difference between two calls: when a process ends, its time is added to its
    parent's.
    """
    stats = _stats()
    children = defaultdict(list)
    for child, fields in stats.items():
        children[int(fields[_PARENT])].append(child)
    ticks = [int(field) for field in stats[pid][_TIMES]]
    own, below = sum(ticks[:2]), sum(ticks[2:])
    waiting = list(children[pid])
    while waiting:
        found = waiting.pop()
        below += sum(int(field) for field in stats[found][_TIMES])
        waiting += children[found]
    per_second = os.sysconf("SC_CLK_TCK")
    return own / per_second, below / per_second


def grandchildren(pid: int) -> set[int]:
    """Return the processes below a process, without its own children."""
    parents = {child: int(fields[_PARENT]) for child, fields in _stats().items()}
    children = {child for child, parent in parents.items() if parent == pid}
    below = {child for child, parent in parents.items() if parent in children}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return below


def _stats() -> dict[int, list[str]]:
    found = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            try:
                found[int(directory.name)] = (
                    (directory / "stat").read_text().rpartition(")")[2].split()
                )
            except (FileNotFoundError, ProcessLookupError):  # the process has ended
                continue
    return found
