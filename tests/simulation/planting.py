"""Plants known bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.simulation.seed_run import SimulationResult

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutation:
    """A bug.

    Attributes:
        plant: patches the code so that it has the bug.
        anomalies: the anomalies that the bug causes; the simulation must find one of them.
        found_by: a seed that found the bug before; tried first.
    """

    plant: Callable[[Patch], None]
    anomalies: frozenset[str]
    found_by: int

    @property
    def __name__(self) -> str:
        return self.plant.__name__

    def seeds(self, count: int) -> Iterator[int]:
        """Return the seeds to try."""
        yield self.found_by
        yield from (seed for seed in range(count) if seed != self.found_by)


FindBug = Callable[[Mutation, Callable[[int], SimulationResult], int], None]
"""Plants a bug, and fails unless one of the first seeds of a simulation finds it."""


def into(
    mutations: list[Mutation],
) -> Callable[..., Callable[[Callable[[Patch], None]], Callable[[Patch], None]]]:
    """Return a decorator that adds a bug to a list."""

    def mutation(
        *anomalies: str, found_by: int = 0
    ) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
        def add(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
            mutations.append(Mutation(plant, frozenset(anomalies), found_by))
            return plant

        return add

    return mutation
