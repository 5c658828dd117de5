"""The simulation of clients, embedded cluster and faults: no seed has findings, seeds can be
replayed, and known bugs are found.
"""

from __future__ import annotations

import pytest

from tests.selection import by_default_each
from tests.simulation.command import main
from tests.simulation.command_process import run_command
from tests.simulation.mutations import MUTATIONS
from tests.simulation.planting import FindBug, Mutation
from tests.simulation.simulator import simulate

SEEDS, SLOW, MANY = 10, 20, 100
# In which a planted bug must show.
SEARCHED = 200
# Each of this number of bugs is planted without `-m faults`.
ALWAYS = 6


@pytest.mark.parametrize(
    "seeds",
    [
        f"0-{SEEDS - 1}",
        pytest.param(f"{SEEDS}-{SLOW - 1}", marks=pytest.mark.slow),
        pytest.param(f"{SLOW}-{MANY - 1}", marks=pytest.mark.faults),
    ],
)
def test_many_seeds_have_no_findings(seeds: str) -> None:
    result = run_command("--seeds", seeds, "--processes", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    first, last = map(int, seeds.split("-"))
    assert result.stdout.startswith(f"{last - first + 1} seeds, ")


@pytest.mark.parametrize("seed", [1_000, 1_001, 1_002])
def test_no_findings_with_ready_tasks_in_random_order(seed: int) -> None:
    result = simulate(seed, hostile=True)
    assert not result.findings, result.report()


def test_a_seed_gives_the_same_run_in_another_process() -> None:
    result = simulate(3)
    assert simulate(3).digest == result.digest != simulate(4).digest
    for hash_seed in ("1", "2"):
        replayed = run_command("--seed", "3", "--trace", hash_seed=hash_seed).stdout
        assert f"digest {result.digest}\n" in replayed


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(
            each,
            marks=by_default_each(ALWAYS, place),
            id=each.__name__,
        )
        for place, each in enumerate(MUTATIONS)
    ],
)
def test_a_known_bug_is_found(mutation: Mutation, find_bug: FindBug) -> None:
    find_bug(mutation, simulate, SEARCHED)


def test_a_failing_seed_prints_its_settings_and_history(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "broker_loses_acknowledged_records"
    next(each for each in MUTATIONS if each.__name__ == name).plant(monkeypatch)
    assert main(["--seeds", "0-0"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("seed 0: ")
    assert "batch_size=" in printed
    assert "\n  lost-write: record " in printed
    assert "sends record" in printed
    assert "replay: python -m tests.simulation --seed 0 --trace" in printed
    assert printed.endswith("findings in the seeds 0\n")


def test_a_seed_of_processors_has_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--clients", "processors", "--seed", "1"]) == 0
    assert capsys.readouterr().out.endswith("no findings\n")


def test_a_failing_seed_of_processors_prints_what_it_chose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.processing.oracle.disordered_keys", lambda calls: ["disordered"])
    assert main(["--clients", "processors", "--seed", "1", "--hostile"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("seed 1: at_least_once, protocol classic")
    assert "\n  disordered\n" in printed
    assert "replay: python -m tests.simulation --clients processors --seed 1 --hostile" in printed
