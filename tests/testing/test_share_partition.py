"""The records of one partition for one share group, without a broker."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from dataclasses import replace

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.settings.configs import Configs
from aioprod.testing.broker.settings.group_configs import GroupConfigs, ShareSettings
from aioprod.testing.broker.share_groups.group import assign_simple
from aioprod.testing.broker.share_groups.records import Acknowledge, Acknowledgements, LogBatch
from aioprod.testing.broker.share_groups.share_partition import SharePartition

CONFIGS = GroupConfigs(Configs(GroupSettings().as_broker_settings(), lambda: None))
SETTINGS = replace(CONFIGS.share("g"), from_earliest=True)


def acquired(
    state: SharePartition,
    member: str,
    batches: list[LogBatch],
    *,
    most: int = 500,
    exact: bool = False,
    now: float = 0.0,
    settings: ShareSettings = SETTINGS,
) -> dict[int, int]:
    """Acquire, and return the delivery counts."""
    wanted = [each for each in batches if each.last >= state.next_fetch_offset]
    runs = state.acquire(member, wanted, most, 500, settings, now, exact=exact)
    return {
        offset: each.delivery_count for each in runs for offset in range(each.first, each.last + 1)
    }


def say(state: SharePartition, member: str, offset: int, kind: int) -> None:
    state.acknowledge(member, [Acknowledgements(offset, offset, [kind])], SETTINGS, 0.0)


def test_the_locks_of_a_partition_are_limited() -> None:
    settings = replace(SETTINGS, max_record_locks=100)
    state = SharePartition(0)
    batches = [LogBatch(first, first + 39) for first in range(0, 400, 40)]
    assert len(acquired(state, "a", batches, settings=settings)) == 120  # whole batches
    assert acquired(state, "b", batches, settings=settings) == {}
    state.acknowledge("a", [Acknowledgements(0, 79, [Acknowledge.ACCEPT])], settings, 0.0)
    assert acquired(state, "b", batches, settings=settings).keys() == set(range(120, 200))


def test_aborted_records_are_done() -> None:
    state = SharePartition(0)
    batches = [LogBatch(0, 3), LogBatch(4, 7, is_aborted=True), LogBatch(8, 8), LogBatch(9, 9)]
    assert acquired(state, "a", batches).keys() == {0, 1, 2, 3, 8, 9}
    state.acknowledge("a", [Acknowledgements(0, 3, [Acknowledge.ACCEPT])], SETTINGS, 0.0)
    assert (state.start_offset, state.end_offset) == (8, 10)


def test_a_new_leader_begins_with_what_was_written() -> None:
    state, batches = SharePartition(0), [LogBatch(0, 9)]
    acquired(state, "a", batches)
    for offset, kind in (
        (0, Acknowledge.ACCEPT),
        (2, Acknowledge.ACCEPT),
        (3, Acknowledge.RELEASE),
    ):
        say(state, "a", offset, kind)
    assert acquired(state, "b", batches) == {3: 2}
    state.reload()
    assert state.start_offset == 1
    with pytest.raises(RequestError):
        say(state, "a", 1, Acknowledge.ACCEPT)
    # The deliveries that were not acknowledged do not count.
    assert acquired(state, "c", batches) == {
        **dict.fromkeys([1, 4, 5, 6, 7, 8, 9], 1),
        3: 2,
    }


def test_either_all_records_of_a_request_change_or_none() -> None:
    state, batches = SharePartition(0), [LogBatch(0, 4), LogBatch(5, 9)]
    acquired(state, "a", batches, most=5)
    acquired(state, "b", batches, most=5)
    with pytest.raises(RequestError) as caught:
        state.acknowledge("a", [Acknowledgements(0, 7, [Acknowledge.ACCEPT])], SETTINGS, 0.0)
    assert caught.value.code is ErrorCode.INVALID_RECORD_STATE
    assert state.start_offset == 0
    state.acknowledge("a", [Acknowledgements(0, 4, [Acknowledge.ACCEPT])], SETTINGS, 0.0)
    assert state.start_offset == 5


@pytest.mark.parametrize("seed", range(8))
def test_no_record_is_lost_and_none_is_given_twice(seed: int) -> None:
    """A ledger of random members, locks that end and new leaders."""
    rng = random.Random(seed)
    limit = rng.choice([2, 3, 5, 10])
    settings = replace(SETTINGS, delivery_count_limit=limit, max_record_locks=100)
    state, batches, end = SharePartition(0), list[LogBatch](), 0
    lock_owners: dict[int, tuple[str, float]] = {}
    given: Counter[int] = Counter()
    accepted: set[int] = set()
    rejected: set[int] = set()
    now, moved = 0.0, False
    for step in range(400):
        now += rng.random()
        deed = rng.random()
        writes = step < 300
        if deed < 0.25 and writes:
            size = rng.randint(1, 12)
            batches.append(LogBatch(end, end + size - 1))
            end += size
        elif deed < 0.6:
            member = rng.choice("abc")
            got = acquired(
                state,
                member,
                batches,
                most=(most := rng.randint(1, 15)),
                exact=(exact := rng.random() < 0.5),
                now=now,
                settings=settings,
            )
            assert not exact or len(got) <= most
            assert not got.keys() & (lock_owners.keys() | accepted | rejected)
            for offset, count in got.items():
                given[offset] += 1
                assert given[offset] == count if not moved else count <= given[offset]
                assert count <= limit
                lock_owners[offset] = member, now + settings.lock_duration_ms / 1000
        elif deed < 0.9 and lock_owners:
            offset = rng.choice(list(lock_owners))
            member, _ = lock_owners[offset]
            kind = rng.choice([1, 1, 2, 2, 3, 4])
            run = [Acknowledgements(offset, offset, [kind])]
            with pytest.raises(RequestError):
                state.acknowledge(f"not {member}", run, settings, now)
            state.acknowledge(member, run, settings, now)
            if kind == Acknowledge.RENEW:
                lock_owners[offset] = member, now + settings.lock_duration_ms / 1000
                continue
            del lock_owners[offset]
            if kind != Acknowledge.RELEASE:
                (accepted if kind == Acknowledge.ACCEPT else rejected).add(offset)
        elif deed < 0.95:
            now += rng.choice([1.0, 31.0])
            state.expire(now, settings)
            lock_owners = {at: each for at, each in lock_owners.items() if each[1] > now}
        elif deed < 0.97:
            state.release("a", settings)
            lock_owners = {at: each for at, each in lock_owners.items() if each[0] != "a"}
        elif deed < 0.99:
            state.reload()
            lock_owners.clear()
            moved = True
    # At the end all that is left is taken and accepted.
    state.expire(now + 100, settings)
    while got := acquired(state, "z", batches, now=now, settings=settings):
        assert not got.keys() & (accepted | rejected)
        accepted |= got.keys()
        for offset in got:
            say(state, "z", offset, Acknowledge.ACCEPT)
            given[offset] += 1
    assert state.start_offset == state.end_offset == end
    # Each record was accepted, rejected, or delivered up to the limit.
    for offset in set(range(end)) - accepted - rejected:
        assert given[offset] >= limit, offset


def test_members_share_partitions_if_there_are_more_of_them() -> None:
    topic = uuid.UUID(int=1)
    for partitions in range(1, 6):
        for members in range(1, 8):
            places = [(topic, number) for number in range(partitions)]
            targets = assign_simple({f"m{number}": places for number in range(members)}, {})
            readers = Counter(place for each in targets.values() for place in each)
            assert readers == dict.fromkeys(places, -(-members // partitions))
            assert all(targets.values())
            assert assign_simple(dict.fromkeys(targets, places), targets) == targets


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("share.record.lock.duration.ms", "0"),
        ("share.auto.offset.reset", "none"),
        ("share.delivery.count.limit", "1"),
        ("share.session.timeout.ms", "200"),
        ("session.timeout.ms", "1"),
    ],
)
def test_settings_of_groups_are_checked(name: str, text: str) -> None:
    with pytest.raises(RequestError, match=f"^.*{name}") as caught:
        CONFIGS.parse({name: text})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
