"""The judge of the crash runs finds what is planted, or its word is worth nothing."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from confluent_kafka import Producer

from .crash_judge import Ends, judge
from .crash_scale import count_rows, fill

_LIMIT_S = 20.0


@pytest.fixture
def topics(kafka: str) -> list[str]:
    name = f"judged-{uuid.uuid4().hex[:8]}"
    return [f"{name}-even", f"{name}-odd"]


@pytest.fixture
def producer(kafka: str) -> Producer:
    made = Producer(
        {"bootstrap.servers": kafka, "transactional.id": f"judged-{uuid.uuid4()}", "linger.ms": 0}
    )
    made.init_transactions(_LIMIT_S)
    return made


def write(producer: Producer, topics: list[str], rows: list[int]) -> None:
    for number in rows:
        producer.produce(topics[number % 2], f"row {number}".encode(), str(number).encode())
    assert producer.flush(_LIMIT_S) == 0


def test_a_topic_with_each_row_once(kafka: str, producer: Producer, topics: list[str]) -> None:
    producer.begin_transaction()
    write(producer, topics, [3, 0, 2, 1])
    producer.commit_transaction(_LIMIT_S)
    verdict = judge(kafka, topics, 4)
    assert verdict.exactly_once
    assert (verdict.rows, verdict.written) == (4, 4)


def test_duplicates_missing_and_wrong_rows_are_distinguished_and_aborted_ones_do_not_count(
    kafka: str, producer: Producer, topics: list[str]
) -> None:
    producer.begin_transaction()
    write(producer, topics, [0, 1, 2, 0, 0])
    producer.produce(topics[1], b"row 4", b"4")
    producer.produce(topics[0], b"something", b"4")
    producer.commit_transaction(_LIMIT_S)
    producer.begin_transaction()
    write(producer, topics, [3, 1])
    producer.abort_transaction(_LIMIT_S)
    verdict = judge(kafka, topics, 5)
    assert not verdict.exactly_once
    assert (verdict.rows, verdict.duplicates, verdict.missing) == (3, [0, 0], [3, 4])
    assert len(verdict.wrong) == 2
    assert verdict.written == 9


def test_rows_of_the_run_on_a_cluster_are_counted(kafka: str, producer: Producer) -> None:
    """Two rows again, one record that is not a row, and one row that was never written."""
    topic = f"judged-{uuid.uuid4().hex[:8]}"
    asyncio.run(fill(kafka, topic, 3))
    assert count_rows(kafka, topic, 1, 3) == {"once": 3, "missing": 0, "doubled": 0, "wrong": 0}
    producer.begin_transaction()
    for key, value in ((b"1", b"1".rjust(92, b"0")), (b"2", b"2".rjust(92, b"0")), (b"4", b"x")):
        producer.produce(topic, value, key)
    producer.commit_transaction(_LIMIT_S)
    assert count_rows(kafka, topic, 1, 4) == {"once": 1, "missing": 1, "doubled": 2, "wrong": 1}


def test_an_open_transaction_is_seen(kafka: str, producer: Producer, topics: list[str]) -> None:
    producer.begin_transaction()
    write(producer, topics, [0, 1])
    ends = Ends(kafka, topics)
    try:
        assert (ends.stable(), ends.high()) == ([0, 0], [1, 1])
        with pytest.raises(TimeoutError, match=r"stable \[0, 0\], wanted \[1, 1\]"):
            ends.wait_for(ends.high(), limit_s=0.2)
        producer.commit_transaction(_LIMIT_S)
        ends.wait_for([1, 1])
    finally:
        ends.close()
