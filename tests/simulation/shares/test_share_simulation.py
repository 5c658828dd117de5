"""The simulation of share groups: seeds have no findings and can be replayed; known bugs are
found.
"""

from __future__ import annotations

import pytest

from tests.simulation.command import main
from tests.simulation.command_process import run_command
from tests.simulation.planting import FindBug, Mutation
from tests.simulation.shares.share_mutations import SHARE_MUTATIONS
from tests.simulation.shares.simulator import simulate_shares

SEEDS = 3
# Known bugs that are found at once.
QUICK = {
    "an_acknowledgement_without_a_response_is_confirmed",
    "a_cancelled_call_loses_its_records",
    "commit_hides_what_failed_before",
    "the_generation_of_a_session_is_not_checked",
    "renewals_go_on_after_the_close",
}
# `python -m tests.simulation --clients shares --seeds N` runs more.
MANY = 100


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_findings(seed: int) -> None:
    result = simulate_shares(seed, hostile=seed % 3 == 2)
    assert not result.findings, result.report()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(SEEDS, MANY))
def test_no_findings_in_many_seeds(seed: int) -> None:
    result = simulate_shares(seed, hostile=seed % 3 == 2)
    assert not result.findings, result.report()


def test_a_seed_gives_the_same_run_again() -> None:
    assert simulate_shares(1).digest == simulate_shares(1).digest


@pytest.mark.faults
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_gives_the_same_run_in_another_process(hash_seed: str) -> None:
    arguments = "--clients", "shares", "--seed", "4", "--trace"
    replayed = run_command(*arguments, hash_seed=hash_seed).stdout
    assert f"digest {simulate_shares(4).digest}\n" in replayed


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(
            each,
            marks=[] if each.__name__ in QUICK else [pytest.mark.faults],
            id=each.__name__,
        )
        for each in SHARE_MUTATIONS
    ],
)
def test_a_known_bug_is_found(mutation: Mutation, find_bug: FindBug) -> None:
    find_bug(mutation, simulate_shares, MANY)


def test_the_command_runs_share_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--clients", "shares", "--seed", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("accepted: ")
    assert printed.endswith(" s: no findings\n")
