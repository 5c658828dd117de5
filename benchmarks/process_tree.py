"""CPU time of a process and of all that it has started (Linux)."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

# Behind the name, which may have spaces: the parent's id; the CPU time of the process in user and
# kernel mode, then that of its children that ended.
_PARENT, _TIMES = 1, slice(11, 15)


def tree_cpu_s(pid: int) -> tuple[float, float]:
    """CPU seconds of a process that runs, and of its descendants, those that have ended included.

    The figures only grow: a process that ends adds its time to its parent's. What is measured is
        therefore the difference of two calls.
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


def _stats() -> dict[int, list[str]]:
    found = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            try:
                found[int(directory.name)] = (
                    (directory / "stat").read_text().rpartition(")")[2].split()
                )
            except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                continue
    return found
