"""Interceptors get each record and its outcome, and their failures affect nothing else."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aioprod.errors import KafkaError
from aioprod.interceptors import (
    ConsumerInterceptor,
    ConsumerInterceptorChain,
    InterceptorChain,
    ProducerInterceptor,
)
from aioprod.metrics import ObserverList, ProducerObserver
from aioprod.types import ProducerRecord, RecordMetadata, TopicPartition

RECORD = ProducerRecord("flights", value="v")
PLACE = RecordMetadata("flights", 0, 7, 1000)


class Suffix(ProducerInterceptor):
    def __init__(self, text: str) -> None:
        self.text = text
        self.seen: list[Any] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + self.text)

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.seen.append(("acknowledged", metadata, error))

    def on_send_error(
        self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        self.seen.append(("send error", record, topic_partition, error))

    def close(self) -> None:
        self.seen.append("closed")


class Failing(ProducerInterceptor):
    """Raises in each method while it is broken."""

    def __init__(self) -> None:
        self.broken = True

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self._maybe_fail()
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self._maybe_fail()

    def on_send_error(
        self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        self._maybe_fail()

    def on_delivery(
        self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        self._maybe_fail()

    def close(self) -> None:
        self._maybe_fail()

    def _maybe_fail(self) -> None:
        if self.broken:
            raise RuntimeError("broken interceptor")


class Tracing(ProducerInterceptor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_delivery(
        self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        self.seen.append((record, metadata, error))


def test_an_empty_chain_is_false_and_changes_nothing() -> None:
    chain = InterceptorChain()
    assert not chain and not chain.wants_records
    assert chain.on_send(RECORD) is RECORD
    chain.on_acknowledgement(PLACE, None)
    chain.on_send_error(RECORD, None, ValueError())
    chain.on_delivery(RECORD, PLACE, None)
    chain.close()


def test_each_sees_what_the_previous_one_returned() -> None:
    chain = InterceptorChain([Suffix("1"), Suffix("2")])
    assert chain
    assert chain.on_send(RECORD) == RECORD._replace(value="v12")


def test_the_next_sees_the_last_good_record(caplog: pytest.LogCaptureFixture) -> None:
    chain = InterceptorChain([Suffix("1"), Failing(), Suffix("2")])
    assert chain.on_send(RECORD).value == "v12"
    assert "Failing.on_send failed" in caplog.text and "broken interceptor" in caplog.text


@pytest.mark.parametrize("result", [None, ("flights", "v"), "record"])
def test_a_result_that_is_not_a_record_counts_as_a_failure(
    result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return result  # type: ignore[no-any-return]

    assert InterceptorChain([Suffix("1"), Wrong(), Suffix("2")]).on_send(RECORD).value == "v12"
    assert f"must return a ProducerRecord, not {type(result).__name__}" in caplog.text


def test_outcomes_reach_all_though_one_fails() -> None:
    first, last = Suffix("1"), Suffix("2")
    chain = InterceptorChain([first, Failing(), last])
    error, refused = KafkaError("lost"), ValueError("too large")
    chain.on_acknowledgement(PLACE, None)
    chain.on_acknowledgement(PLACE, error)
    chain.on_send_error(RECORD, TopicPartition("flights", 0), refused)
    chain.close()
    expected = [
        ("acknowledged", PLACE, None),
        ("acknowledged", PLACE, error),
        ("send error", RECORD, TopicPartition("flights", 0), refused),
        "closed",
    ]
    assert first.seen == last.seen == expected


def test_records_are_wanted_only_where_on_delivery_is_overridden() -> None:
    assert not InterceptorChain([Suffix("1")]).wants_records
    tracing = Tracing()
    chain = InterceptorChain([Failing(), tracing])
    assert chain.wants_records
    chain.on_delivery(RECORD, PLACE, None)
    assert tracing.seen == [(RECORD, PLACE, None)]


def test_a_method_set_on_the_object_counts_as_overridden() -> None:
    seen: list[RecordMetadata] = []
    interceptor = ProducerInterceptor()
    interceptor.on_acknowledgement = lambda metadata, error: seen.append(metadata)  # type: ignore[method-assign]
    InterceptorChain([interceptor]).on_acknowledgement(PLACE, None)
    assert seen == [PLACE]


def test_a_failure_is_logged_once_until_it_succeeds_again(caplog: pytest.LogCaptureFixture) -> None:
    failing, other = Failing(), Failing()
    chain = InterceptorChain([failing, other])

    def logged() -> int:
        count = len(caplog.records)
        caplog.clear()
        return count

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            chain.on_send(RECORD)
        assert logged() == 2, "one for each interceptor"
        chain.on_acknowledgement(PLACE, None)
        assert logged() == 2, "another method is another failure"
        failing.broken = False
        chain.on_send(RECORD)
        failing.broken = True
        chain.on_send(RECORD)
        assert logged() == 1, "it had succeeded in between; the other one had not"


def test_errors_of_interceptors_and_observers_are_logged_alike(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(ConsumerInterceptor, ProducerInterceptor, ProducerObserver):
        def close(self) -> None:
            raise ValueError("out of order")

    plugin = Broken()
    for chain in (
        InterceptorChain([plugin]),
        ConsumerInterceptorChain([plugin]),
        ObserverList(ProducerObserver, [plugin]),
    ):
        chain.close()
        (record,) = caplog.records
        assert (record.levelno, record.getMessage()) == (
            logging.ERROR,
            "Broken.close failed; not logged again until it succeeds",
        )
        caplog.clear()


def test_the_base_class_does_nothing() -> None:
    base = ProducerInterceptor()
    base.configure({})
    assert base.on_send(RECORD) is RECORD
    chain = InterceptorChain([base])
    assert chain and chain.on_send(RECORD) is RECORD
