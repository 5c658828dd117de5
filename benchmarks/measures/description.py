"""Describes what is measured: the versions of the client and the interpreter, and how they were
built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import builds
from benchmarks.adapters import Adapter, Settings
from benchmarks.measures import Numbers


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Takes no arguments and does not connect."""
    return {"client": adapter.describe(), "interpreter": builds.interpreter()}
