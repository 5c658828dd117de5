"""The simulation of the client and the embedded cluster through faults: seeds by the hundred,
replays, and bugs that it has to find.
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
from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.simulator import simulate

SEEDS = 200
LIMIT_SECONDS = 110


def command(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def test_nothing_is_found_in_hundreds_of_seeds() -> None:
    """What it prints names the seeds that failed, their settings and what led there."""
    result = command("--seeds", str(SEEDS), "--processes", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith(f"{SEEDS} seeds, ")


@pytest.mark.parametrize("seed", [1_000, 1_001, 1_002])
def test_nothing_depends_on_the_order_of_tasks_that_are_ready(seed: int) -> None:
    verdict = simulate(seed, hostile=True)
    assert not verdict.findings, verdict.report()


def test_a_seed_goes_the_same_way_again_here_and_in_another_process() -> None:
    verdict = simulate(3)
    assert simulate(3).digest == verdict.digest != simulate(4).digest
    for hash_seed in ("1", "2"):
        replayed = command("--seed", "3", "--trace", hash_seed=hash_seed).stdout
        assert f"digest {verdict.digest}\n" in replayed


@pytest.fixture
def unclosed_clients_are_no_fault(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A run that a planted bug has broken can't close its clients; what was logged keeps them by
    its tracebacks.
    """
    yield
    caplog.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.usefixtures("unclosed_clients_are_no_fault")
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_known_bug_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.switch_in(monkeypatch)
    found = next(
        (verdict for seed in mutation.seeds(SEEDS) if (verdict := simulate(seed)).findings), None
    )
    assert found is not None, f"{SEEDS} seeds have found nothing"
    # By what it does wrong, not by a crash that any change would bring.
    assert mutation.anomalies & {finding.anomaly for finding in found.findings}, found.report()


def test_a_failing_seed_prints_itself_its_settings_and_what_led_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    next(
        mutation for mutation in MUTATIONS if mutation.__name__ == "broker_acknowledges_and_forgets"
    ).switch_in(monkeypatch)
    assert main(["--seeds", "0-0"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("seed 0: ")
    assert "batch_size=" in printed
    assert "\n  lost-write: record " in printed
    assert "sends record" in printed
    assert "replay: python -m tests.simulation --seed 0 --trace" in printed
    assert printed.endswith("findings in the seeds 0\n")
