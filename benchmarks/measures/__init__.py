"""What workers can measure: a module each, loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from benchmarks.adapters import Adapter, Settings

Figures = dict[str, Any]
"""What JSON can hold, mostly numbers and lists of them, by name; names end in a unit."""

Measure = Callable[[Adapter, Settings, Mapping[str, Any]], Coroutine[Any, Any, Figures]]
"""Takes a new adapter, which it starts and stops itself (``started``), the settings, and what the
question needs.
"""


def measure(name: str) -> Measure:
    """The ``measure`` function of ``benchmarks.measures.NAME``."""
    found: Measure = importlib.import_module(f"{__name__}.{name}").measure
    return found
