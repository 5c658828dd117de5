"""Plants known bugs in the clients, and looks for them."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator

import pytest

from tests.simulation.planting import FindBug, Mutation
from tests.simulation.seed_run import SimulationResult


@pytest.fixture
def find_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[FindBug]:
    """Return a function that plants a bug and fails unless one of the first seeds finds it."""

    def find(mutation: Mutation, simulate: Callable[[int], SimulationResult], count: int) -> None:
        mutation.plant(monkeypatch)
        runs = map(simulate, mutation.seeds(count))
        found = next((result for result in runs if result.findings), None)
        assert found is not None, f"{count} seeds have no findings"
        # The expected anomaly, not a crash that any change could cause.
        assert mutation.anomalies & {finding.anomaly for finding in found.findings}, found.report()

    yield find
    # Collect clients that a run could not close; tracebacks in the log refer to them.
    caplog.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
