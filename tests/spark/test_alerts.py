"""Alerts: when they are due, and how they reach a web address."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from aioprod.spark.alerts import Alert, AlertRules
from aioprod.spark.webhook import Webhook, check_url

from .page_progress import NUMBERS, REJECTED, batch, rejected

QUICK: dict[str, Any] = {"pauses_s": (0.01, 0.01)}


class Receiver:
    """A web address that answers with the given statuses, then with 200."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.silent = threading.Event()
        self.release = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.silent.is_set():
                    receiver.release.wait(20)
                    return
                assert self.headers["Content-Type"] == "application/json"
                receiver.received.append(json.loads(body))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/hunter2"
        self.thread = threading.Thread(target=self.server.serve_forever)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Receiver()
    running.thread.start()
    try:
        yield running
    finally:
        running.release.set()
        running.server.shutdown()
        running.server.server_close()
        running.thread.join(10)


# -- when they are due -----------------------------------------------------------------------------


def lags(rules: AlertRules, *values: int | None) -> None:
    for lag in values:
        rules.add(batch(lag=lag))


def test_a_lag_is_reported_once_until_it_has_fallen_to_half_of_its_limit() -> None:
    reported: list[Alert] = []
    rules = AlertRules("flights", reported.append, lag_limit=100)
    lags(rules, 0, 100, None, 101, 5_000, 99, 101, 51, 50, 0, 200)
    assert [(alert.alert, alert.value) for alert in reported] == [
        ("lag", 101),
        ("lag-over", 50),
        ("lag", 200),
    ]
    assert reported[0] == Alert(
        "lag", "flights", f"{NUMBERS}: the lag is 101 records, more than 100", NUMBERS, 101, 100
    )
    assert rules.exceeded() == [f"{NUMBERS}: the lag is 200 records, more than 100"]
    lags(rules, 100)
    assert rules.exceeded() == []  # the alert stands, but the run ends below its limit


def test_each_query_has_its_own_lag() -> None:
    reported: list[Alert] = []
    rules = AlertRules("flights", reported.append, lag_limit=0)
    rules.add(batch(lag=1))
    rules.add(rejected(lag=2))
    assert [(alert.query, alert.value) for alert in reported] == [(NUMBERS, 1), (REJECTED, 2)]
    assert len(rules.exceeded()) == 2


def test_dead_letters_are_counted_over_the_run() -> None:
    reported: list[Alert] = []
    rules = AlertRules("flights", reported.append, dead_letter_limit=5)
    for count in (3, 2, 0):
        rules.add(rejected(count=count))
    assert reported == [] == rules.exceeded()
    for count in (1, 4):
        rules.add(rejected(count=count))
    assert [(alert.alert, alert.value, alert.limit) for alert in reported] == [
        ("dead-letters", 6, 5)
    ]
    assert rules.exceeded() == [f"{REJECTED}: 10 dead letters in this run, more than 5"]


def test_without_limits_only_a_failure_is_reported() -> None:
    reported: list[Alert] = []
    rules = AlertRules("flights", reported.append)
    rules.add(batch(lag=10**9))
    rules.add(rejected(count=10**6))
    rules.fail("disk full")
    assert [alert.document() for alert in reported] == [
        {
            "alert": "failed",
            "pipeline": "flights",
            "text": "flights has failed: disk full",
            "query": None,
            "value": None,
            "limit": None,
        }
    ]
    assert rules.exceeded() == []


# -- how they are sent -----------------------------------------------------------------------------


def test_alerts_arrive_as_json_in_their_order(receiver: Receiver) -> None:
    hook = Webhook(receiver.url)
    for number in range(3):
        hook.send({"number": number})
    hook.close()
    assert receiver.received == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_a_busy_address_gets_another_request_and_a_refusal_does_not(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [503, 429, 200, 403, 302, 500, 500, 500]
    hook = Webhook(receiver.url, **QUICK)
    for number in range(4):
        hook.send({"number": number})
    hook.close()
    assert [each["number"] for each in receiver.received] == [0, 0, 0, 1, 2, 3, 3, 3]
    lost = "webhook 127.0.0.1: an alert is lost: status"
    assert caplog.messages == [f"{lost} 403", f"{lost} 302", f"{lost} 500"]


def test_the_address_is_not_logged(caplog: pytest.LogCaptureFixture, receiver: Receiver) -> None:
    receiver.statuses = [400]
    hook = Webhook(receiver.url, **QUICK)
    hook.send({})
    hook.close()
    assert caplog.messages and "hunter2" not in caplog.text


def test_an_address_that_does_not_answer_delays_nothing(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.silent.set()
    hook = Webhook(receiver.url, **QUICK)
    began = time.monotonic()
    for number in range(150):
        hook.send({"number": number})
    assert time.monotonic() - began < 1
    assert any("100 alerts wait already" in message for message in caplog.messages)
    began = time.monotonic()
    hook.close(0.2)
    assert time.monotonic() - began < 5
    assert "alerts are lost, it took more than 0.2 s" in caplog.messages[-1]


def test_an_attempt_has_a_limit(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.silent.set()
    hook = Webhook(receiver.url, request_limit_s=0.05, **QUICK)
    hook.send({})
    hook.close()
    assert caplog.messages == ["webhook 127.0.0.1: an alert is lost: TimeoutError: timed out"]


def test_a_port_without_a_server_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with caplog.at_level(logging.ERROR, "aioprod.spark.webhook"):
        hook = Webhook("http://127.0.0.1:9/x", **QUICK)
        hook.send({})
        hook.close()
    assert "refused" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.org/x",
        "file:///etc/passwd",
        "ftp://h/x",
        "http://",
        "http://h:x/",
        "http://h/a b",
    ],
)
def test_other_addresses_are_refused_without_showing_them(url: str) -> None:
    with pytest.raises(ValueError, match="must be an address http://HOST") as raised:
        check_url(url)
    assert "passwd" not in str(raised.value)


def test_addresses_of_both_kinds_are_taken() -> None:
    for url in ("http://127.0.0.1:80/x", "https://hooks.example.org/services/T/B?x=1"):
        assert check_url(url) == url
