"""The page's document, its metrics and its server; tests/spark/test_progress_page_browser.py opens
it in a browser.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import importlib.util
import json
import re
import socket
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aioprod import page_server
from aioprod.page_server import PageServer, Reply, parse_address
from aioprod.spark.page import PageError, ProgressPage
from aioprod.spark.page.history import (
    MAX_BATCHES,
    MAX_PARTITIONS,
    MAX_QUERIES,
    MAX_REASONS,
    ProgressHistory,
)
from aioprod.spark.page.metrics import scrape
from aioprod.spark.page.tasks import QueryTasks

from .page_progress import BEGAN_AT, NUMBERS, REJECTED, batch, rejected, sample, signs_of

HTML = (files("aioprod.spark.page") / "page.html").read_text(encoding="utf-8")


class Answer:
    """A response, read to its end."""

    def __init__(self, url: str, path: str, method: str = "GET", **headers: str) -> None:
        address = urlsplit(url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            self.status, self.headers = response.status, response.headers
            self.body = response.read()
        finally:
            connection.close()

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


@pytest.fixture
def page() -> Iterator[ProgressPage]:
    with ProgressPage("flights", lag_limit=100) as running:
        yield running


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Each sample by its name and the values of its labels, in the order of the labels' names."""
    return {
        (
            sample.name.removeprefix("aioprod_pipeline_"),
            tuple(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# -- the document ----------------------------------------------------------------------------------


def test_the_document_has_the_numbers_of_the_micro_batches() -> None:
    history = ProgressHistory("flights", lag_limit=100, clock=lambda: BEGAN_AT + 60)
    for number in (0, 1):
        sizes = {"input": {"bytes": 5_000}} if number else {}
        skew = 1.5 if number else None
        history.add(batch(number, rows=1_000 + number, observed=sizes, skew=skew))
        history.add(rejected(number, count=3 + number))
    document = history.document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    letters, measured = document["queries"]
    assert (letters["query"], measured["query"]) == (REJECTED, NUMBERS)
    assert measured == {
        "query": NUMBERS,
        "batch_id": 1,
        "reported_at": BEGAN_AT + 60,
        "batches": 2,
        "rows_total": 2_001,
        "rows_per_second": 800.0,
        "batch_ms": 1_250,
        "lag": 30,
        "lag_by_partition": [
            {"topic": "flights", "partition": 0, "lag": 10},
            {"topic": "flights", "partition": 1, "lag": 20},
        ],
        "partitions": 2,
        "late_rows_total": 4,
        "dead_letters_total": None,
        "dead_letter_samples": [],
        "state_rows": 7,
        "state_bytes": 4_096,
        "watermark_delay_s": None,
        "event_age_s": None,
        "bytes_per_second": 4_000.0,
        "bytes_total": 5_000,
        "skew": 1.5,
        "stage": None,
    }
    assert letters["dead_letters_total"] == 7
    assert [point["dead_letters_total"] for point in document["batches"]] == [None, 3, None, 7]
    assert document["batches"][0] == {
        "number": 1,
        "query": NUMBERS,
        "batch_id": 0,
        "ended_at": BEGAN_AT + 1.25,
        "rows": 1_000,
        "rows_per_second": 800.0,
        "batch_ms": 1_250,
        "phases_ms": {"latestOffset": 10, "addBatch": 900, "walCommit": 40, "commitBatch": 5},
        "lag": 30,
        "state_rows": 7,
        "state_bytes": 4_096,
        "late_rows_total": 2,
        "dead_letters_total": None,
        "watermark_delay_s": None,
        "event_age_s": None,
        "bytes_per_second": None,
        "skew": None,
    }


def test_the_newest_dead_letter_of_each_reason_is_kept() -> None:
    history = ProgressHistory("flights")
    history.add(rejected(0, samples=[sample("not JSON", 1), None, sample("no value", 2)]))
    before = history.document()
    history.add(rejected(1, samples=[sample("not JSON", 3)]))
    history.add(batch(0))

    def found(document: dict[str, Any]) -> list[tuple[str, int]]:
        letters = document["queries"][0]["dead_letter_samples"]
        return [(letter["reason"], letter["offset"]) for letter in letters]

    assert found(before) == [("no value", 2), ("not JSON", 1)]
    assert found(history.document()) == [("not JSON", 3), ("no value", 2)]
    for number in range(2, 100):
        history.add(rejected(number, samples=[sample(f"reason {number}", number)]))
    newest = [(f"reason {number}", number) for number in range(99, 99 - MAX_REASONS, -1)]
    assert found(history.document()) == newest


def test_a_page_gets_only_what_it_does_not_have() -> None:
    history = ProgressHistory("flights")
    for number in range(5):
        history.add(batch(number))
    run = history.document()["run"]
    newer = [point["batch_id"] for point in history.document(run, 3)["batches"]]
    assert newer == [3, 4]
    assert history.document(run, 5)["batches"] == []
    # It was open already when the pipeline was started again.
    assert len(history.document("another", 5)["batches"]) == 5


def test_memory_is_bounded() -> None:
    history = ProgressHistory("flights")
    lags = {"flights": {str(number): number % 100 for number in range(300)}}
    for number in range(MAX_BATCHES + 50):
        query = f"query {number % (2 * MAX_QUERIES)}"
        history.add(batch(number, query, lag_by_partition=lags))
    document = history.document()
    assert len(document["batches"]) == MAX_BATCHES
    assert document["batches"][-1]["batch_id"] == MAX_BATCHES + 49
    assert len(document["queries"]) == MAX_QUERIES
    shown = document["queries"][0]["lag_by_partition"]
    assert document["queries"][0]["partitions"] == 300
    assert len(shown) == MAX_PARTITIONS and min(each["lag"] for each in shown) >= 83
    assert [each["partition"] for each in shown] == sorted(each["partition"] for each in shown)


def test_only_the_first_end_counts() -> None:
    history = ProgressHistory("flights", clock=lambda: 5.0)
    assert history.document()["state"] == "starting"
    history.running()
    assert history.document()["state"] == "running"
    history.end("no leader")
    history.end()
    history.running()
    document = history.document()
    assert (document["state"], document["error"]) == ("failed", "no leader")
    assert document["ended_at"] == 5.0


# -- metrics ---------------------------------------------------------------------------------------


def test_prometheus_gets_the_same_numbers() -> None:
    history = ProgressHistory("flights", clock=lambda: BEGAN_AT)
    history.add(batch(0))
    sizes = {"input": {"bytes": 2_500}}
    history.add(
        batch(
            1,
            rows=500,
            observed=sizes,
            skew=1.25,
            lag_by_partition={'a "quoted" topic\n': {"0": 9}},
        )
    )
    history.add(rejected(0, count=4, lag=None, lag_by_partition=None))
    body, content_type = scrape(history, "text/plain")
    assert content_type.startswith("text/plain")
    found = samples(body.decode())
    expected = {
        ("state", ("starting",)): 0,
        ("state", ("running",)): 1,
        ("state", ("stopped",)): 0,
        ("state", ("failed",)): 0,
        ("batches_total", (NUMBERS,)): 2,
        ("rows_total", (NUMBERS,)): 1_500,
        ("late_rows_total", (NUMBERS,)): 4,
        ("batch_rows", (NUMBERS,)): 500,
        ("rows_per_second", (NUMBERS,)): 800,
        ("batch_seconds", (NUMBERS,)): 1.25,
        ("state_rows", (NUMBERS,)): 7,
        ("state_bytes", (NUMBERS,)): 4_096,
        ("last_report_timestamp_seconds", (NUMBERS,)): BEGAN_AT,
        ("phase_seconds", ("addBatch", NUMBERS)): 0.9,
        ("lag", ("0", NUMBERS, 'a "quoted" topic\n')): 9,
        ("dead_letters_total", (REJECTED,)): 4,
        ("bytes_total", (NUMBERS,)): 2_500,
        ("bytes_per_second", (NUMBERS,)): 2_000,
        ("partition_skew", (NUMBERS,)): 1.25,
    }
    assert {name: found[name] for name in expected} == expected
    assert ("dead_letters_total", (NUMBERS,)) not in found
    assert [name for name in found if name[0] == "lag"] == [
        ("lag", ("0", NUMBERS, 'a "quoted" topic\n'))
    ]


def test_a_scrape_has_the_longest_task_of_each_query_whose_tasks_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = {"mean_ms": 10.0, "longest": [{"ms": 25}, {"ms": 3}]}
    stages = {"skewed": stage, "new": None, "idle": {"mean_ms": 0.0, "longest": [{"ms": 0}]}}
    monkeypatch.setattr(QueryTasks, "longest_stage", lambda _self, query, _run: stages[query])
    history = ProgressHistory("flights")
    for query in stages:
        history.add(batch(0, query=query))
    found = samples(scrape(history, "")[0].decode())
    assert {name: found[name] for name in found if name[0] == "task_skew"} == {
        ("task_skew", ("skewed",)): 2.5
    }


def test_a_scrape_before_the_first_micro_batch_has_the_state() -> None:
    found = samples(scrape(ProgressHistory("flights"), "")[0].decode())
    assert found["state", ("starting",)] == 1
    assert {name for name, _ in found} == {"state"}


def test_without_prometheus_client_metrics_say_what_to_install(
    page: ProgressPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "prometheus_client" else find_spec(name),
    )
    answer = Answer(page.url, "/metrics")
    assert answer.status == 501
    assert b'pip install "aioprod[prometheus]"' in answer.body


# -- the server ------------------------------------------------------------------------------------


def test_the_server_has_four_documents(page: ProgressPage) -> None:
    page.add(batch(0))
    html = Answer(page.url, "/")
    assert (html.status, html.body.decode()) == (200, HTML)
    assert html.headers["Content-Type"] == "text/html; charset=utf-8"
    assert html.headers["Cache-Control"] == "no-store"
    data = Answer(page.url, "/data.json")
    assert data.headers["Content-Type"] == "application/json"
    assert (data.document["title"], data.document["lag_limit"]) == ("flights", 100)
    assert data.document["queries"][0]["rows_total"] == 1_000
    found = samples(Answer(page.url, "/metrics", Accept="text/plain").body.decode())
    assert found["rows_total", (NUMBERS,)] == 1_000
    assert Answer(page.url, "/healthz").body == b"running\n"


def test_a_probe_is_informed_of_a_failure(page: ProgressPage) -> None:
    assert (Answer(page.url, "/healthz").status, Answer(page.url, "/healthz").body) == (
        200,
        b"starting\n",
    )
    page.fail("no leader")
    answer = Answer(page.url, "/healthz")
    assert (answer.status, answer.body) == (503, b"failed\n")
    assert Answer(page.url, "/data.json").document["error"] == "no leader"


def test_a_probe_is_informed_of_a_stalled_query() -> None:
    now = [0.0]
    signs = signs_of(lambda: now[0])
    with ProgressPage("flights", signs=signs) as page:
        page.add(batch())
        signs.seen("1", NUMBERS)
        now[0] = 31.0
        answer = Answer(page.url, "/healthz")
        assert (answer.status, answer.body.decode()) == (
            503,
            f"stalled\n{NUMBERS}: no report for 31 s: it is processing one micro-batch, or is "
            "stalled\n",
        )
        found = samples(Answer(page.url, "/metrics", Accept="text/plain").body.decode())
        assert found["silent_seconds", (NUMBERS,)] == 31
        signs.seen("1")
        assert Answer(page.url, "/healthz").body == b"running\n"


def test_requests_that_are_not_answered_are_reported_why(page: ProgressPage) -> None:
    assert Answer(page.url, "/etc/passwd").status == 404
    assert b"/data.json" in Answer(page.url, "/x").body
    posted = Answer(page.url, "/", "POST")
    assert (posted.status, posted.headers["Allow"]) == (405, "GET, HEAD")
    head = Answer(page.url, "/healthz", "HEAD")
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", "9")
    assert Answer(page.url, "/data.json?after=x&run=%00").status == 200
    # Another site's name that resolves to 127.0.0.1.
    assert Answer(page.url, "/data.json", Host="evil.example:80").status == 403
    for host in ("localhost:1", "127.0.0.1", "[::1]:9"):
        assert Answer(page.url, "/data.json", Host=host).status == 200


def test_a_document_that_fails_is_logged_and_the_server_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(request: page_server.Request) -> Reply:
        raise ZeroDivisionError

    running = PageServer({"/bad": fail, "/good": lambda _: Reply(b"good")}, "127.0.0.1", 0)
    running.start()
    try:
        assert Answer(running.url, "/bad").status == 500
        assert "ZeroDivisionError" in caplog.text
        assert Answer(running.url, "/good").body == b"good"
    finally:
        running.close()


def test_garbage_and_silence_delay_nothing(page: ProgressPage) -> None:
    address = urlsplit(page.url)
    place = (address.hostname or "", address.port or 0)
    with socket.create_connection(place, 10):  # says nothing, and is left open
        for garbage in (b"\x16\x03\x01\r\n\r\n", b"GET /\r\n\r\n", b"x" * 100_000):
            with socket.create_connection(place, 10) as connection:
                try:
                    connection.sendall(garbage)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4_096):
                        pass
                except OSError:
                    pass  # the server has closed the connection
        assert Answer(page.url, "/healthz").status == 200


def test_a_request_that_trickles_in_ends_at_the_limit(
    page: ProgressPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "_REQUEST_LIMIT_S", 0.3)
    address = urlsplit(page.url)
    with socket.create_connection((address.hostname or "", address.port or 0), 10) as connection:
        began = time.monotonic()
        with pytest.raises(OSError):
            for _ in range(200):  # far less than http.server's limit, which is per read
                connection.sendall(b"GET / HTTP/1.1\r\nX: "[:1])
                time.sleep(0.05)
        assert time.monotonic() - began < 9
    assert Answer(page.url, "/healthz").status == 200


def test_connections_beyond_all_limits_are_closed(
    page: ProgressPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "_MAX_CONNECTIONS", 0)
    monkeypatch.setattr(page_server, "_MAX_REFUSALS", 0)
    with pytest.raises((OSError, http.client.HTTPException)):
        Answer(page.url, "/healthz")


def test_too_many_connections_are_refused(
    page: ProgressPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "_MAX_CONNECTIONS", 0)
    assert Answer(page.url, "/healthz").status == 503


def test_a_port_that_is_taken_is_named(page: ProgressPage) -> None:
    port = urlsplit(page.url).port or 0
    with pytest.raises(PageError, match=rf"127\.0\.0\.1:{port} .*in use.*port 0 for a free one"):
        ProgressPage("second", port=port).__enter__()


def test_an_address_that_is_not_of_this_machine_is_named() -> None:
    with pytest.raises(PageError, match=r"can't listen on 192\.0\.2\.1:0"):
        ProgressPage("flights", host="192.0.2.1").__enter__()


def test_an_open_page_reads_the_end_before_the_server_ends() -> None:
    running = ProgressPage("flights")
    with running:
        url = running.url
        Answer(url, "/data.json?reader=a")
        began = time.monotonic()
    # No page asks again: the server waits, but not for long.
    assert 1.5 < time.monotonic() - began < 10
    with pytest.raises(ConnectionRefusedError):
        Answer(url, "/healthz")


def test_without_an_open_page_the_server_ends_at_once() -> None:
    with ProgressPage("flights") as running:
        Answer(running.url, "/data.json")
        began = time.monotonic()
    assert time.monotonic() - began < 1.5


def test_an_exception_is_the_failure_that_the_page_shows() -> None:
    running = ProgressPage("flights", reason=lambda error: f"because {error}")
    with pytest.raises(RuntimeError):
        with running:
            raise RuntimeError("of it")
    document = running._history.document()
    assert (document["state"], document["error"]) == ("failed", "because of it")
    stopped = ProgressPage("flights")
    with pytest.raises(KeyboardInterrupt):
        with stopped:
            raise KeyboardInterrupt
    assert stopped._history.state == "stopped"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8080", ("127.0.0.1", 8080)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:9", ("0.0.0.0", 9)),
        ("[::1]:9", ("::1", 9)),
        ("host:9", ("host", 9)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":", ":80", "host", "host:", "host:65536", "1:-1", "1.5"])
def test_wrong_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be PORT or HOST:PORT"):
        parse_address(text)


# -- the page itself -------------------------------------------------------------------------------


def test_the_page_needs_no_other_resource() -> None:
    addresses = set(
        re.findall(r"(?:https?:)?//[\w.]+[\w/.]*", re.sub(r"(?m)^// .*|  // .*", "", HTML))
    )
    assert addresses == {"http://www.w3.org/2000/svg"}  # a namespace
    assert set(re.findall(r"\b(?:src|href)=\"([^\"]*)\"", HTML)) == {
        "data:,",
        "data.json",
        "metrics",
    }
    assert not re.findall(r"@import|url\(|<iframe|<img|\bimport\b", HTML)


def test_the_page_takes_text_from_outside_as_text() -> None:
    script = HTML[HTML.index("<script>") :]
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|on\w+="
    assert not re.findall(unsafe, script)


def test_the_policy_allows_the_pages_own_script_and_style_only(page: ProgressPage) -> None:
    policy = Answer(page.url, "/").headers["Content-Security-Policy"]
    for tag in ("script", "style"):
        content = HTML[HTML.index(f"<{tag}>") + len(tag) + 2 : HTML.index(f"</{tag}>")]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy
