"""The measures of workers: one module for each, imported when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from benchmarks.adapters import Adapter, Settings

Numbers = dict[str, Any]
"""JSON values by name; names end in a unit."""

Measure = Callable[[Adapter, Settings, Mapping[str, Any]], Coroutine[Any, Any, Numbers]]
"""Takes a new adapter, which it starts and stops, the settings, and the measure's arguments."""


def measure(name: str) -> Measure:
    """Return the ``measure`` function of ``benchmarks.measures.NAME``."""
    function: Measure = importlib.import_module(f"{__name__}.{name}").measure
    return function
