"""The simulation of groups: seeds have no findings and can be replayed; known bugs are found."""

from __future__ import annotations

from functools import partial

import pytest

from tests.selection import by_default_each
from tests.simulation.command import main
from tests.simulation.command_process import run_command
from tests.simulation.groups.group_mutations import EPOCH_MUTATIONS, GROUP_MUTATIONS
from tests.simulation.groups.scenario import CLASSIC, CONSUMER, PROTOCOLS, draw
from tests.simulation.groups.simulator import simulate_group
from tests.simulation.planting import FindBug, Mutation

SEEDS = {CLASSIC: 3, CONSUMER: 2}
# In which a planted bug must show.
SEARCHED = {CLASSIC: 5, CONSUMER: 4}
# Known bugs with which a run waits for what never comes, or is long.
SLOW = {
    "a_fenced_epoch_is_sent_again",
    "a_member_does_not_learn_of_rebalances",
    "heartbeats_come_too_seldom",
    "records_of_revoked_partitions_are_returned",
    "the_former_coordinator_is_asked_forever",
}
# Of the others, each of this number is planted without `-m faults`.
ALWAYS = 5
# `python -m tests.simulation --clients groups --seeds N` runs more.
MANY = 100


@pytest.mark.parametrize(
    ("protocol", "seed"),
    [
        pytest.param(protocol, seed, marks=pytest.mark.slow if seed > 1 else ())
        for protocol, count in SEEDS.items()
        for seed in range(count)
    ],
)
def test_no_findings(protocol: str, seed: int) -> None:
    result = simulate_group(seed, protocol=protocol, hostile=seed % 3 == 2)
    assert not result.findings, result.report()


@pytest.mark.faults
@pytest.mark.parametrize(
    ("protocol", "seed"),
    [(protocol, seed) for protocol, count in SEEDS.items() for seed in range(count, MANY)],
)
def test_no_findings_in_many_seeds(protocol: str, seed: int) -> None:
    result = simulate_group(seed, protocol=protocol, hostile=seed % 3 == 2)
    assert not result.findings, result.report()


def test_a_run_goes_on_if_its_members_have_not_created_the_group_yet() -> None:
    """Its only member is suspended until everything is repaired."""
    result = simulate_group(30031)
    assert not result.findings, result.report()


def test_a_member_without_a_connection_has_no_time_to_leave() -> None:
    """With ``close_timeout_ms=0``, and after its connection to the coordinator was idle."""
    result = simulate_group(20_237, protocol=CONSUMER)
    assert not result.findings, result.report()


def test_the_seed_draws_the_protocol_unless_it_is_given() -> None:
    assert {draw(seed).protocol for seed in range(10)} == set(PROTOCOLS)
    for protocol in PROTOCOLS:
        assert {draw(seed, protocol).protocol for seed in range(10)} == {protocol}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_seed_gives_the_same_run_again(protocol: str) -> None:
    first, again, other = (simulate_group(seed, protocol=protocol).digest for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.faults
@pytest.mark.parametrize("hash_seed", ["1", "2"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_seed_gives_the_same_run_in_another_process(protocol: str, hash_seed: str) -> None:
    arguments = "--clients", "groups", "--protocol", protocol, "--seed", "2", "--trace"
    replayed = run_command(*arguments, hash_seed=hash_seed).stdout
    assert f"digest {simulate_group(2, protocol=protocol).digest}\n" in replayed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "mutation"),
    [
        pytest.param(
            protocol,
            each,
            marks=[pytest.mark.faults] if each.__name__ in SLOW else by_default_each(ALWAYS, place),
            id=each.__name__,
        )
        for protocol, mutations in ((CLASSIC, GROUP_MUTATIONS), (CONSUMER, EPOCH_MUTATIONS))
        for place, each in enumerate(mutations)
    ],
)
def test_a_known_bug_is_found(protocol: str, mutation: Mutation, find_bug: FindBug) -> None:
    find_bug(mutation, partial(simulate_group, protocol=protocol), SEARCHED[protocol])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_command_runs_groups(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--clients", "groups", "--protocol", protocol, "--seed", "2"]) == 0
    assert capsys.readouterr().out.endswith(" s: no findings\n")


def test_the_command_has_a_protocol_of_groups_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--protocol", CONSUMER, "--seed", "2"])
    assert "--protocol needs --clients groups" in capsys.readouterr().err
