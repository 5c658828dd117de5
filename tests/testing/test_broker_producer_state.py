"""The sequence check of idempotent producers follows Kafka's ProducerStateManager, even if the
sequence wraps.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.producer_state import (
    MAX_SEQUENCE,
    REMEMBERED_BATCHES,
    ProducerStates,
    SequenceError,
    increment_sequence,
)

PID = 7


def append(
    states: ProducerStates, sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0
) -> None:
    states.check(PID, epoch, sequence)
    states.record(PID, epoch, sequence, count, offset, timestamp=0)


def refused(states: ProducerStates, sequence: int, epoch: int = 0) -> ErrorCode:
    with pytest.raises(SequenceError) as caught:
        states.check(PID, epoch, sequence)
    return caught.value.code


def test_an_unknown_producer_may_begin_anywhere() -> None:
    append(ProducerStates(), 17)


def test_the_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    states = ProducerStates()
    append(states, 0, 3)
    assert refused(states, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(states, 3)


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    states = ProducerStates()
    append(states, 0, 3)
    assert refused(states, 3, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(states, 0, epoch=1)
    assert refused(states, 3, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(states, 1, epoch=1)


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    states = ProducerStates()
    append(states, 0, epoch=0, offset=5)
    append(states, 0, epoch=1, offset=6)
    duplicate = states.find_duplicate(PID, 1, 0, 1)
    assert duplicate is not None and duplicate.base_offset == 6
    assert states.find_duplicate(PID, 0, 0, 1) is None


def test_the_last_five_batches_are_known_and_no_more() -> None:
    states = ProducerStates()
    for number in range(REMEMBERED_BATCHES + 1):
        append(states, number * 2, 2, offset=100 + number * 2)
    assert states.find_duplicate(PID, 0, 0, 2) is None
    for number in range(1, REMEMBERED_BATCHES + 1):
        duplicate = states.find_duplicate(PID, 0, number * 2, 2)
        assert duplicate is not None and duplicate.base_offset == 100 + number * 2


def test_a_batch_with_the_same_start_and_another_length_is_not_a_duplicate() -> None:
    states = ProducerStates()
    append(states, 0, 3)
    assert states.find_duplicate(PID, 0, 0, 2) is None
    assert refused(states, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producers_do_not_know_of_each_other() -> None:
    states = ProducerStates()
    append(states, 0, 3)
    states.check(PID + 1, 0, 0)
    assert states.find_duplicate(PID + 1, 0, 0, 3) is None


def test_zero_follows_the_largest_sequence() -> None:
    states = ProducerStates()
    append(states, MAX_SEQUENCE)
    assert refused(states, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(states, 0)


@given(sequence=st.integers(0, MAX_SEQUENCE), increment=st.integers(0, MAX_SEQUENCE))
def test_increment_is_the_one_of_java(sequence: int, increment: int) -> None:
    # DefaultRecordBatch.incrementSequence, word for word
    expected = (
        increment - (MAX_SEQUENCE - sequence) - 1
        if sequence > MAX_SEQUENCE - increment
        else sequence + increment
    )
    assert increment_sequence(sequence, increment) == expected


@given(
    distance=st.integers(0, 40),
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=20),
    wrong=st.integers(-50, 50).filter(bool),
)
def test_batches_run_through_the_wrap_around_without_a_gap(
    distance: int, counts: list[int], wrong: int
) -> None:
    states = ProducerStates()
    sequence, offset = MAX_SEQUENCE - distance, 0
    sent: list[tuple[int, int, int]] = []
    for count in counts:
        append(states, sequence, count, offset=offset)
        sent.append((sequence, count, offset))
        sequence, offset = (sequence + count) % (MAX_SEQUENCE + 1), offset + count
    for first, count, at in sent[-REMEMBERED_BATCHES:]:
        duplicate = states.find_duplicate(PID, 0, first, count)
        assert duplicate is not None and duplicate.base_offset == at
    for first, count, _ in sent[:-REMEMBERED_BATCHES]:
        assert states.find_duplicate(PID, 0, first, count) is None
    assert (
        refused(states, (sequence + wrong) % (MAX_SEQUENCE + 1))
        is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    states.check(PID, 0, sequence)
