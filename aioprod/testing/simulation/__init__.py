"""Deterministic simulation: the unchanged client and broker on an event loop with virtual time and
a seeded network in memory.

``run(main(), seed)`` runs any asyncio program so; ``SimulatedLoop`` is its loop, and
``loop.network`` fails on demand.
"""

from __future__ import annotations

from aioprod.testing.simulation.loop import SimulatedLoop, run
from aioprod.testing.simulation.network import Network
from aioprod.testing.simulation.network_faults import NetworkFault
from aioprod.testing.simulation.trace import SimulationError

__all__ = ["Network", "NetworkFault", "SimulatedLoop", "SimulationError", "run"]
