"""Metrics: Kafka's names, windows as in Kafka, no NaN, a bounded number of topics; observers: one's
fault stays its own.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from pathlib import Path

import pytest

from aioprod.metrics import (
    BatchDone,
    BatchSent,
    ObservedProducer,
    ProducerMetrics,
    ProducerObserver,
    ProducerObservers,
    RequestDone,
)

DONE = BatchDone("t", 0, 10, 1_000, 1, 0.004, 0.008, None)


def send_batches(metrics: ProducerMetrics, count: int, now: float, topic: str = "t") -> None:
    for _ in range(count):
        metrics.batch_sent(topic, 10, 500, 1_000, 0.002, now)


# -- totals and averages ---------------------------------------------------------------------------


def test_a_batch_is_counted_for_the_producer_and_for_its_topic() -> None:
    metrics = ProducerMetrics()
    metrics.batch_sent("a", 10, 400, 1_000, 0.004, 1.0)
    metrics.batch_sent("b", 30, 800, 1_000, 0.002, 2.0)
    seen = metrics.snapshot(2.0)
    assert seen["record-send-total"] == 40
    assert seen["batch-size-avg"] == 600
    assert seen["batch-size-max"] == 800
    assert seen["compression-rate-avg"] == pytest.approx(0.6)
    assert seen["record-queue-time-avg"] == pytest.approx(3)
    assert seen["record-queue-time-max"] == pytest.approx(4)
    assert seen["record-size-avg"] == 50
    by_topic = metrics.snapshot_by_topic(2.0)
    assert by_topic["a"]["record-send-total"] == 10
    assert by_topic["b"]["byte-total"] == 800
    assert by_topic["a"]["compression-rate"] == pytest.approx(0.4)


def test_outcomes_are_counted_apart() -> None:
    metrics = ProducerMetrics()
    metrics.batch_succeeded("t", 5, 1.0)
    metrics.batch_retried("t", 3, 1.0)
    metrics.batch_failed("t", 2, 1.0)
    metrics.batch_split(1.0)
    for seen in (metrics.snapshot(1.0), metrics.snapshot_by_topic(1.0)["t"]):
        assert [
            seen[f"record-{name}-total"] for name in ("send", "acknowledged", "retry", "error")
        ] == [0, 5, 3, 2]
        assert [
            seen[f"record-{name}-rate"] > 0 for name in ("send", "acknowledged", "retry", "error")
        ] == [False, True, True, True]
    assert metrics.snapshot(1.0)["batch-split-total"] == 1


def test_requests_are_counted_for_their_node() -> None:
    metrics = ProducerMetrics()
    metrics.request_sent(1, 20, 2_000, 1.0)
    metrics.request_sent(2, 40, 4_000, 1.0)
    metrics.request_done(1, 0.010, 1.0)
    metrics.request_done(2, 0.030, 1.0)
    metrics.throttled(2, 8, 1.0)
    metrics.throttled(1, 0, 1.0)
    seen, nodes = metrics.snapshot(1.0), metrics.snapshot_by_node(1.0)
    assert (
        seen["records-per-request-avg"],
        seen["request-size-avg"],
        seen["request-size-max"],
    ) == (30, 3_000, 4_000)
    assert (seen["request-total"], seen["response-total"], seen["outgoing-byte-total"]) == (
        2,
        2,
        6_000,
    )
    assert seen["request-latency-avg"] == pytest.approx(20)
    assert seen["request-latency-max"] == pytest.approx(30)
    assert (seen["produce-throttle-time-avg"], seen["produce-throttle-time-max"]) == (4, 8)
    assert nodes[1]["request-latency-avg"] == pytest.approx(10)
    assert (nodes[1]["produce-throttle-time-max"], nodes[2]["produce-throttle-time-max"]) == (0, 8)


def test_waiting_is_counted_in_nanoseconds() -> None:
    metrics = ProducerMetrics()
    metrics.buffer_waited(0.5, 1.0)
    metrics.buffer_exhausted(1.0)
    metrics.metadata_waited(0.25)
    metrics.flushed(2.0)
    metrics.transaction_step("init", 0.5)
    metrics.transaction_step("commit", 1.0)
    metrics.transaction_step("commit", 1.0)
    seen = metrics.snapshot(1.0)
    assert seen["bufferpool-wait-time-ns-total"] == 0.5e9
    assert seen["buffer-exhausted-total"] == 1
    assert seen["metadata-wait-time-ns-total"] == 0.25e9
    assert seen["flush-time-ns-total"] == 2e9
    assert (
        seen["txn-init-time-ns-total"],
        seen["txn-commit-time-ns-total"],
        seen["txn-abort-time-ns-total"],
    ) == (0.5e9, 2e9, 0)


def test_connections_are_counted_and_those_that_are_open_are_known() -> None:
    metrics = ProducerMetrics()
    for _ in range(3):
        metrics.connection_opened(1.0)
    metrics.connection_closed(1.0)
    seen = metrics.snapshot(1.0)
    assert (
        seen["connection-creation-total"],
        seen["connection-close-total"],
        seen["connection-count"],
    ) == (3, 1, 2)


def busy() -> ProducerMetrics:
    """One topic, one node, one moment, and no number that is 0 by chance."""
    metrics = ProducerMetrics(30_000, 2)
    metrics.batch_sent("t", 10, 500, 1_000, 0.002, 1.0)
    metrics.batch_succeeded("t", 7, 1.0)
    metrics.batch_retried("t", 3, 1.0)
    metrics.batch_failed("t", 2, 1.0)
    metrics.batch_split(1.0)
    for size, latency in ((600, 0.02), (400, 0.01)):
        metrics.request_sent(7, 10, size, 1.0)
        metrics.request_done(7, latency, 1.0)
    metrics.throttled(7, 5, 1.0)
    metrics.buffer_exhausted(1.0)
    metrics.connection_opened(1.0)
    metrics.connection_closed(1.0)
    return metrics


def test_the_numbers_of_the_only_topic_and_node_are_the_producers() -> None:
    metrics = busy()
    whole, of_topic, of_node = (
        metrics.snapshot(1.0),
        metrics.snapshot_by_topic(1.0)["t"],
        metrics.snapshot_by_node(1.0)[7],
    )
    assert (
        of_topic.pop("byte-total"),
        of_topic.pop("byte-rate"),
        of_topic.pop("compression-rate"),
    ) == (500, 500 / 30, 0.5)
    for part in (of_topic, of_node):
        assert part == {name: whole[name] for name in part}
        assert all(part.values())
    assert (
        of_node["request-size-avg"],
        of_node["request-size-max"],
        of_node["outgoing-byte-total"],
    ) == (500, 600, 1_000)
    assert of_node["request-latency-avg"] == pytest.approx(15)
    assert of_node["request-latency-max"] == pytest.approx(20)


def test_each_rate_belongs_to_a_total() -> None:
    whole = busy().snapshot(1.0)
    rates = {name for name in whole if name.endswith("-rate")}
    assert len(rates) > 10
    for name in rates:
        assert whole[name] == whole[name.removesuffix("rate") + "total"] / 30 > 0


def test_gauges_are_taken_over() -> None:
    assert (
        ProducerMetrics().snapshot(1.0, {"buffer-available-bytes": 7.0})["buffer-available-bytes"]
        == 7
    )


def test_nothing_is_nan_and_all_names_are_there_from_the_start() -> None:
    metrics = ProducerMetrics()
    before = metrics.snapshot(0.0)
    send_batches(metrics, 1, 1.0)
    metrics.batch_sent("empty", 1, 100, 0, 0.0, 1.0)
    assert before.keys() == metrics.snapshot(1.0).keys()
    assert set(before.values()) == {0.0}
    for seen in (metrics.snapshot(1.0), *metrics.snapshot_by_topic(1.0).values()):
        assert all(type(value) is float and math.isfinite(value) for value in seen.values())


# -- windows ---------------------------------------------------------------------------------------


def test_the_first_events_make_no_absurd_rate() -> None:
    metrics = ProducerMetrics(30_000, 2)
    send_batches(metrics, 3, 100.0)
    # As in Kafka: the window before this one counts as full.
    assert metrics.snapshot(100.0)["record-send-rate"] == pytest.approx(30 / 30)
    assert metrics.snapshot(110.0)["record-send-rate"] == pytest.approx(30 / 40)


def test_a_steady_stream_has_its_true_rate() -> None:
    metrics = ProducerMetrics(30_000, 2)
    for second in range(300):
        send_batches(metrics, 10, float(second))
        if second > 60:
            assert metrics.snapshot(float(second))["record-send-rate"] == pytest.approx(
                100, rel=0.04
            )
    assert metrics.snapshot(300.0)["record-send-total"] == 30_000


def test_old_windows_leave_rates_averages_and_maxima_but_not_totals() -> None:
    metrics = ProducerMetrics(30_000, 2)
    metrics.batch_sent("t", 10, 900, 900, 0.9, 0.0)
    metrics.batch_sent("t", 10, 100, 100, 0.1, 31.0)
    assert metrics.snapshot(59.0)["batch-size-max"] == 900
    assert metrics.snapshot(59.0)["record-send-rate"] == pytest.approx(20 / 59)
    # Nothing happens any more: reading alone must see that time has passed.
    later = metrics.snapshot(61.0)
    assert later["batch-size-max"] == 100
    assert later["record-queue-time-max"] == pytest.approx(100)
    assert later["record-send-rate"] == pytest.approx(10 / 30)
    silence = metrics.snapshot(92.0)
    assert (
        silence["batch-size-avg"],
        silence["record-send-rate"],
        silence["record-send-total"],
    ) == (0, 0, 20)
    assert metrics.snapshot_by_topic(92.0)["t"]["record-send-total"] == 20


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_as_many_windows_are_kept_as_asked_for(samples: int) -> None:
    metrics = ProducerMetrics(1_000, samples)
    for second in range(20):
        metrics.batch_sent("t", 1, second, second, 0.0, float(second))
    seen = metrics.snapshot(19.5)
    assert seen["batch-size-avg"] == pytest.approx(sum(range(20 - samples, 20)) / samples)
    assert len(metrics._producer._state[1]) == samples
    assert seen["record-send-total"] == 20


def test_a_single_window_that_has_just_begun_makes_no_absurd_rate() -> None:
    metrics = ProducerMetrics(30_000, 1)
    send_batches(metrics, 1, 5.0)
    assert metrics.snapshot(5.0)["record-send-rate"] == 10


def test_a_clock_that_stops_or_goes_back_does_no_harm() -> None:
    metrics = ProducerMetrics()
    send_batches(metrics, 1, 100.0)
    assert metrics.snapshot(99.0)["record-send-rate"] == pytest.approx(10 / 30)


# -- bounds ----------------------------------------------------------------------------------------


def test_an_idle_topic_and_node_expire() -> None:
    metrics = ProducerMetrics(30_000, 2, idle_s=600)
    send_batches(metrics, 1, 0.0, "old")
    metrics.request_done(1, 0.1, 0.0)
    send_batches(metrics, 1, 500.0, "new")
    metrics.request_done(2, 0.1, 500.0)
    assert set(metrics.snapshot_by_topic(500.0)) == {"old", "new"}
    assert set(metrics.snapshot_by_topic(700.0)) == {"new"}
    send_batches(metrics, 1, 700.0, "new")
    assert set(metrics._topics) == {"new"}
    assert set(metrics._nodes) == {2}
    assert metrics.snapshot(700.0)["record-send-total"] == 30


def test_topics_are_bounded_and_those_used_longest_ago_go() -> None:
    metrics = ProducerMetrics(30_000, 2, max_topics=100)
    for number in range(500):
        send_batches(metrics, 1, number * 40.0, f"t{number}")
        send_batches(metrics, 1, number * 40.0, "busy")
        assert len(metrics._topics) <= 100
    kept = metrics.snapshot_by_topic(500 * 40.0)
    assert {"t499", "busy"} <= set(kept)
    assert "t0" not in kept
    assert kept["busy"]["record-send-total"] == 5_000
    assert metrics.snapshot(0.0)["record-send-total"] == 10_000


def test_nodes_are_bounded() -> None:
    metrics = ProducerMetrics(max_nodes=10)
    for number in range(100):
        metrics.request_done(number, 0.1, 1.0)
    assert len(metrics.snapshot_by_node(1.0)) <= 10


def test_another_thread_may_read_at_any_time() -> None:
    metrics = ProducerMetrics(1, 2, max_topics=50)
    ended = threading.Event()
    faults: list[BaseException] = []

    def read() -> None:
        try:
            while not ended.is_set():
                metrics.snapshot(1e9)
                metrics.snapshot_by_topic(0.0)
                metrics.snapshot_by_node(0.0)
        except BaseException as fault:
            faults.append(fault)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20_000):
        send_batches(metrics, 1, number / 1000, f"t{number % 200}")
        metrics.request_done(number % 200, 0.1, number / 1000)
    ended.set()
    reader.join(10)
    assert not faults
    assert metrics.snapshot(20.0)["record-send-total"] == 200_000


# -- observers -------------------------------------------------------------------------------------


class Recorder(ProducerObserver):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def on_start(self, producer: ObservedProducer) -> None:
        self.seen.append(producer.client_id)

    def on_batch_sent(self, event: BatchSent) -> None:
        self.seen.append(event)

    def on_batch_done(self, event: BatchDone) -> None:
        self.seen.append(event)

    def on_request(self, event: RequestDone) -> None:
        self.seen.append(event)

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        self.seen.append((node_id, address, opened, error))

    def close(self) -> None:
        self.seen.append("closed")


class Broken(ProducerObserver):
    def __init__(self) -> None:
        self.failing = True

    def on_batch_done(self, event: BatchDone) -> None:
        if self.failing:
            raise RuntimeError("a fault of the observer's")


def observed() -> ObservedProducer:
    return ObservedProducer("me", dict, dict, dict)


METHODS = ("on_batch_done", "on_batch_sent", "on_connection", "on_request", "on_start", "close")


def test_no_observer_is_false_so_that_no_event_is_made() -> None:
    assert not ProducerObservers()
    assert ProducerObservers([ProducerObserver()])


def test_every_observer_sees_everything() -> None:
    first, second = Recorder(), Recorder()
    observers = ProducerObservers([first, ProducerObserver(), second])
    sent = BatchSent("t", 0, 1, 10, 500, 1_000, 1, 0.004)
    request = RequestDone(1, "Produce", 0.003, None)
    observers.start(observed())
    observers.start(observed())  # a start that failed is tried again
    observers.notify("on_connection", 1, "localhost:9092", True, None)
    observers.notify("on_batch_sent", sent)
    observers.notify("on_request", request)
    observers.notify("on_batch_done", DONE)
    observers.close()
    assert (
        first.seen
        == second.seen
        == ["me", (1, "localhost:9092", True, None), sent, request, DONE, "closed"]
    )


def test_an_observer_that_fails_is_logged_once_until_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, other = Broken(), Recorder()
    observers = ProducerObservers([broken, other])
    for _ in range(5):
        observers.notify("on_batch_done", DONE)
    assert len(other.seen) == 5
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "Broken.on_batch_done" in caplog.text and "a fault of the observer's" in caplog.text
    broken.failing = False
    observers.notify("on_batch_done", DONE)
    broken.failing = True
    observers.notify("on_batch_done", DONE)
    assert len(caplog.records) == 2


def test_an_observer_is_not_called_for_what_it_does_not_watch() -> None:
    """An observer that only wants outcomes costs nothing for requests."""
    observers = ProducerObservers([Broken()])
    assert [name for name in METHODS if observers.wants(name)] == ["on_batch_done"]


# -- documentation ---------------------------------------------------------------------------------


def test_the_documentation_names_each_metric_and_no_other() -> None:
    text = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text()
    table = text.partition("| name | meaning |")[2].partition("\n\n")[0]
    described = {
        name
        for row in table.splitlines()
        for name in re.findall(r"`([a-z-]+)`", row.split("|")[1] if row else "")
    }
    gauges = {
        "requests-in-flight",
        "buffer-total-bytes",
        "buffer-available-bytes",
        "waiting-threads",
        "metadata-age",
    }
    assert described == set(ProducerMetrics().snapshot(0.0)) | gauges
