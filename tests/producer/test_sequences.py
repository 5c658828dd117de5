"""Sequence numbers, holes and epochs, without a broker."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from aioprod.error_codes import ErrorCode
from aioprod.producer.batch import ProducerBatch, ProducerIdAndEpoch
from aioprod.producer.sequences import (
    MAX_EPOCH,
    MAX_SEQUENCE,
    MAX_UNRESOLVED,
    PartitionSequence,
    ProducerState,
    increment_sequence,
)
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import TopicPartition
from tests.producer.collaborators import NoEvents


def java_increment(sequence: int, increment: int) -> int:
    """The rule of Kafka's DefaultRecordBatch.incrementSequence, in 32-bit arithmetic without
    overflow.
    """
    if sequence > MAX_SEQUENCE - increment:
        return increment - (MAX_SEQUENCE - sequence) - 1
    return sequence + increment


@given(st.integers(0, MAX_SEQUENCE), st.integers(1, 1_000_000))
def test_increment_equals_javas(sequence: int, increment: int) -> None:
    assert increment_sequence(sequence, increment) == java_increment(sequence, increment)


def test_increment_wraps_to_zero() -> None:
    assert increment_sequence(MAX_SEQUENCE, 1) == 0
    assert increment_sequence(MAX_SEQUENCE - 1, 3) == 1


def batches(count: int) -> list[ProducerBatch]:
    made = []
    for order in range(count):
        writer = RecordBatchWriter(0)
        writer.append(0, None, b"x")
        writer.append(0, None, b"y")
        made.append(
            ProducerBatch(
                TopicPartition("t", 0),
                writer,
                limit=100,
                leased=0,
                created_at=0.0,
                order=(order,),
                events=NoEvents(),
            )
        )
    return made


def started() -> tuple[ProducerState, PartitionSequence]:
    producer = ProducerState("p")
    producer.identity = ProducerIdAndEpoch((7, 0))
    return producer, PartitionSequence(producer)


async def test_consecutive_sequences_and_at_most_five_unresolved() -> None:
    _, partition = started()
    confirm(partition)
    made = batches(6)
    assert [partition.may_send(batch) for batch in made] == [True] * MAX_UNRESOLVED + [False]
    assert [batch.base_sequence for batch in made] == [2, 4, 6, 8, 10, -1]
    partition.stored(made[0])
    assert partition.may_send(made[5])
    assert made[5].base_sequence == 12


async def test_the_first_batch_of_an_identity_travels_alone() -> None:
    """A broker without state takes any first sequence: a second batch could be stored before a
    first that was refused for a moment.
    """
    _, partition = started()
    first, second = batches(2)
    assert partition.may_send(first)
    assert not partition.may_send(second)
    partition.stored(first)
    assert partition.may_send(second)


def transactional() -> tuple[ProducerState, PartitionSequence]:
    """A transactional producer whose first transaction has stored a batch."""
    producer = ProducerState("p", transactional=True)
    producer.identity = ProducerIdAndEpoch((7, 0))
    partition = PartitionSequence(producer)
    confirm(partition)
    return producer, partition


async def test_the_next_transaction_sends_batches_together() -> None:
    """Its epoch is the next one (KIP-890), of which brokers that know the last accept only 0."""
    producer, partition = transactional()
    producer.adopt(ProducerIdAndEpoch((7, 1)))
    first, second = batches(2)
    assert partition.may_send(first) and partition.may_send(second)
    assert [first.base_sequence, second.base_sequence] == [0, 2]


async def test_a_first_batch_travels_alone_if_the_broker_may_know_nothing() -> None:
    for identity in ((8, 0), (7, 2)):
        producer, partition = transactional()
        producer.adopt(ProducerIdAndEpoch(identity))
        first, second = batches(2)
        assert partition.may_send(first) and not partition.may_send(second)
    producer, partition = transactional()
    (refused,) = batches(1)
    assert partition.may_send(refused)
    partition.rewrite(refused, ErrorCode.UNKNOWN_PRODUCER_ID)
    producer.adopt(ProducerIdAndEpoch((7, 1)))
    first, second = batches(2)
    assert partition.may_send(first) and not partition.may_send(second)
    producer, partition = transactional()
    partition.forgotten_by_broker()
    producer.adopt(ProducerIdAndEpoch((7, 1)))
    first, second = batches(2)
    assert partition.may_send(first) and not partition.may_send(second)


def confirm(partition: PartitionSequence) -> None:
    """Let the broker store a first batch, of two records."""
    (batch,) = batches(1)
    assert partition.may_send(batch)
    partition.stored(batch)


async def test_nothing_is_sent_without_an_identity() -> None:
    partition = PartitionSequence(ProducerState("p"))
    (batch,) = batches(1)
    assert not partition.may_send(batch)
    assert batch.base_sequence == -1


async def test_a_retry_waits_for_the_earlier_ones() -> None:
    _, partition = started()
    confirm(partition)
    first, second = batches(2)
    assert partition.may_send(first) and partition.may_send(second)
    assert not partition.may_send(second)
    assert partition.may_send(first)


async def test_a_hole_bumps_the_epoch_once_for_all_partitions() -> None:
    producer = ProducerState("p")
    producer.identity = ProducerIdAndEpoch((7, 0))
    partitions = [PartitionSequence(producer) for _ in range(3)]
    made = batches(6)
    for partition, batch in zip(partitions, made, strict=False):
        assert partition.may_send(batch)
    partitions[0].given_up(made[0])
    assert (producer.bumps, producer.identity) == (1, ProducerIdAndEpoch((7, 1)))
    assert not partitions[1].may_send(made[4]), "its batch of the old epoch is still unresolved"
    partitions[1].stored(made[1])
    partitions[2].stored(made[2])
    for partition, batch in zip(partitions, made[3:], strict=True):
        assert partition.may_send(batch)
        assert (batch.identity, batch.base_sequence) == (ProducerIdAndEpoch((7, 1)), 0)
    assert producer.bumps == 1


async def test_what_may_be_stored_keeps_its_sequence_behind_a_doubtful_hole() -> None:
    """The first batch expired without an answer: it may be stored, so the second may be too and
    must go again unchanged.
    """
    _, partition = started()
    confirm(partition)
    first, second = batches(2)
    assert partition.may_send(first) and partition.may_send(second)
    first.may_be_stored = second.may_be_stored = True
    partition.given_up(first)
    assert partition.may_send(second)
    assert (second.identity, second.base_sequence) == (ProducerIdAndEpoch((7, 0)), 4)


async def test_epochs_run_out() -> None:
    producer, partition = started()
    producer.identity = ProducerIdAndEpoch((7, MAX_EPOCH - 1))
    (batch,) = batches(1)
    assert partition.may_send(batch)
    partition.given_up(batch)
    assert producer.identity is None
    await asyncio.sleep(0)


async def test_behind_a_certain_hole_batches_get_new_sequences_in_order() -> None:
    producer, partition = started()
    confirm(partition)
    first, second, third = batches(3)
    for batch in (first, second, third):
        assert partition.may_send(batch)
    third.in_flight = True
    partition.given_up(first)
    assert not partition.may_send(second), "the third is still on its way under the old epoch"
    third.in_flight = False
    assert producer.bumps == 1
    assert partition.may_send(second)
    partition.stored(second)
    assert partition.may_send(third)
    assert [(batch.identity, batch.base_sequence) for batch in (second, third)] == [
        (ProducerIdAndEpoch((7, 1)), 0),
        (ProducerIdAndEpoch((7, 1)), 2),
    ]
