"""The simulation of groups: seeds have no findings and can be replayed; known bugs are found."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from tests.simulation.command import main
from tests.simulation.groups.group_mutations import GROUP_MUTATIONS
from tests.simulation.groups.simulator import simulate_group
from tests.simulation.planting import Mutation

SEEDS = 5
# Known bugs with which a run waits for what never comes.
SLOW = {
    "a_member_does_not_hear_of_rebalances",
    "heartbeats_come_too_seldom",
    "records_of_revoked_partitions_are_returned",
    "the_former_coordinator_is_asked_forever",
}
# `python -m tests.simulation --clients groups --seeds N` runs more.
MANY = 100


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_findings(seed: int) -> None:
    result = simulate_group(seed, hostile=seed % 3 == 2)
    assert not result.findings, result.report()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(SEEDS, MANY))
def test_no_findings_in_many_seeds(seed: int) -> None:
    result = simulate_group(seed, hostile=seed % 3 == 2)
    assert not result.findings, result.report()


def test_a_seed_gives_the_same_run_again() -> None:
    assert simulate_group(1).digest == simulate_group(1).digest != simulate_group(2).digest


@pytest.fixture
def ignore_unclosed_clients(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect clients that a run with a planted bug could not close."""
    yield
    caplog.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.usefixtures("ignore_unclosed_clients")
@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(each, marks=[pytest.mark.faults] if each.__name__ in SLOW else [])
        for each in GROUP_MUTATIONS
    ],
    ids=lambda mutation: mutation.__name__,
)
def test_a_known_bug_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.plant(monkeypatch)
    found = next(
        (result for seed in mutation.seeds(SEEDS) if (result := simulate_group(seed)).findings),
        None,
    )
    assert found is not None, f"{SEEDS} seeds have no findings"
    # The expected anomaly, not a crash that any change could cause.
    assert mutation.anomalies & {finding.anomaly for finding in found.findings}, found.report()


def test_the_command_runs_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--clients", "groups", "--seed", "2"]) == 0
    assert capsys.readouterr().out.endswith(" s: no findings\n")
