"""The simulation of clients, embedded cluster and faults: no seed has findings, seeds can be
replayed, and known bugs are found.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from tests.simulation.command import main
from tests.simulation.mutations import MUTATIONS
from tests.simulation.planting import Mutation
from tests.simulation.simulator import simulate

SEEDS = 60
# In which a planted bug must show.
SEARCHED = 200
LIMIT_SECONDS = 110


def command(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def test_many_seeds_have_no_findings() -> None:
    result = command("--seeds", str(SEEDS), "--processes", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith(f"{SEEDS} seeds, ")


@pytest.mark.parametrize("seed", [1_000, 1_001, 1_002])
def test_no_findings_with_ready_tasks_in_random_order(seed: int) -> None:
    result = simulate(seed, hostile=True)
    assert not result.findings, result.report()


def test_a_seed_gives_the_same_run_in_another_process() -> None:
    result = simulate(3)
    assert simulate(3).digest == result.digest != simulate(4).digest
    for hash_seed in ("1", "2"):
        replayed = command("--seed", "3", "--trace", hash_seed=hash_seed).stdout
        assert f"digest {result.digest}\n" in replayed


@pytest.fixture
def ignore_unclosed_clients(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect clients that a run with a planted bug could not close; tracebacks in the log refer to
    them.
    """
    yield
    caplog.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.usefixtures("ignore_unclosed_clients")
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_known_bug_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.plant(monkeypatch)
    found = next(
        (result for seed in mutation.seeds(SEARCHED) if (result := simulate(seed)).findings), None
    )
    assert found is not None, f"{SEARCHED} seeds have no findings"
    # The expected anomaly, not a crash that any change could cause.
    assert mutation.anomalies & {finding.anomaly for finding in found.findings}, found.report()


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
