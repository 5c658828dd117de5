"""Deterministic simulation: unchanged asyncio programs on an event loop with virtual time and a
simulated network.

``run(main(), seed)`` runs a program. ``SimulatedLoop`` is the event loop; its ``network`` has
methods that inject faults.
"""

from __future__ import annotations

from aioprod.testing.simulation.loop import SimulatedLoop, run
from aioprod.testing.simulation.network import Network
from aioprod.testing.simulation.network_faults import NetworkFault
from aioprod.testing.simulation.trace import SimulationError

__all__ = ["Network", "NetworkFault", "SimulatedLoop", "SimulationError", "run"]
