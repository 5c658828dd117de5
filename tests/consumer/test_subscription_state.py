"""The subscription and the positions of a consumer: plain state, without an event loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from aioprod import ConsumerStateError, OffsetAndMetadata, TopicPartition
from aioprod.config.offset_reset import OffsetReset
from aioprod.consumer.subscription import Mode, Phase, Position, SubscriptionState

A, B, C = (TopicPartition("t", number) for number in range(3))


def assigned(*partitions: TopicPartition, **callbacks: Any) -> SubscriptionState:
    state = SubscriptionState(**callbacks)
    state.assign(partitions)
    return state


def reading(*partitions: TopicPartition, **callbacks: Any) -> SubscriptionState:
    state = assigned(*partitions, **callbacks)
    for tp in partitions:
        state[tp].found(Position(10, 3))
    return state


def test_names_pattern_and_partitions_exclude_one_another() -> None:
    ways: list[Callable[[SubscriptionState], None]] = [
        lambda state: state.subscribe(["t"]),
        lambda state: state.subscribe_pattern(re.compile("t.*")),
        lambda state: state.assign([A]),
    ]
    for number, way in enumerate(ways):
        state = SubscriptionState()
        way(state)
        way(state)
        for other in ways[:number] + ways[number + 1 :]:
            with pytest.raises(ConsumerStateError, match=r"unsubscribe\(\)"):
                other(state)
        state.unsubscribe()
        assert (state.mode, state.topics, state.pattern, state.partitions) == (
            Mode.NONE,
            frozenset(),
            None,
            {},
        )
        ways[number - 1](state)


def test_partitions_that_stay_keep_their_positions() -> None:
    dropped: list[TopicPartition] = []
    state = reading(A, B, on_drop=dropped.append)
    state.assign([B, C])
    assert state[B].position == Position(10, 3)
    assert state[C].phase is Phase.INITIALIZING
    assert dropped == [A]
    with pytest.raises(ConsumerStateError, match="t-0 is not assigned"):
        state[A]


def test_a_new_partition_waits_for_the_listener() -> None:
    state = SubscriptionState()
    state.subscribe(["t"])
    state.take_assignment([A], awaiting_callback=True)
    state[A].found(Position(0))
    assert not state[A].may_be_fetched
    state.release([A, B])
    assert state[A].may_be_fetched


def test_partitions_are_given_only_to_who_subscribes() -> None:
    with pytest.raises(ConsumerStateError, match="no topics"):
        assigned(A).take_assignment([A])


def test_a_partition_that_is_being_revoked_returns_nothing_and_can_be_committed() -> None:
    state = SubscriptionState()
    state.subscribe(["t"])
    state.take_assignment([A, B])
    state[A].found(Position(5, 1))
    state.begin_revoking([A])
    assert not state[A].may_be_fetched
    assert not state[A].may_be_returned
    assert state.consumed() == {A: OffsetAndMetadata(5, "", 1)}
    state.take_assignment([A, B])
    assert state[A].may_be_fetched


def test_a_seek_voids_what_was_asked_for() -> None:
    dropped: list[TopicPartition] = []
    state = reading(A, on_drop=dropped.append)
    before = state[A].version
    state.seek(A, Position(7))
    assert (state[A].phase, state[A].position, state[A].version) == (
        Phase.FETCHING,
        Position(7),
        before + 1,
    )
    state.seek(A, Position(8, 2))
    assert state[A].phase is Phase.AWAIT_VALIDATION, (
        "its epoch is known: the leader has to confirm it"
    )
    state.seek_by([A], OffsetReset("latest"))
    assert (state[A].phase, state[A].position, state[A].reset) == (
        Phase.AWAIT_RESET,
        None,
        OffsetReset("latest"),
    )
    assert dropped == [A, A, A]
    assert state.consumed() == {}


def test_a_pause_stops_fetching_and_returning() -> None:
    state = reading(A, B)
    state.pause([A])
    assert (state[A].may_be_fetched, state[A].may_be_returned, state[B].may_be_fetched) == (
        False,
        False,
        True,
    )
    assert state.paused() == {A}
    state.resume([A])
    assert state[A].may_be_fetched
    with pytest.raises(ConsumerStateError, match="t-2"):
        state.pause([A, C])
    assert state.paused() == set(), "all or none"


def test_a_position_under_validation_is_not_read_on_from() -> None:
    state = reading(A)
    state[A].validate()
    assert (state[A].may_be_fetched, state[A].may_be_returned) == (False, False)
    assert state.in_phase(Phase.AWAIT_VALIDATION) == [state[A]]
    assert state.consumed([A, C]) == {A: OffsetAndMetadata(10, "", 3)}
