"""The bytes of pushed metrics, against OpenTelemetry's own classes and the embedded broker."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.protocol.otlp import Labels, MetricsEncoder, Point
from aioprod.testing.broker.telemetry.otlp_reader import read_metrics
from tests.telemetry.decoded import decode

TIMES = st.integers(0, 2**64 - 1)
LABELS = st.dictionaries(st.text(), st.text(max_size=300), max_size=3)
POINTS = st.lists(
    st.builds(
        Point,
        st.text(max_size=40),
        st.floats(allow_nan=False),
        st.builds(lambda labels: tuple(labels.items()), LABELS),
        st.none() | TIMES,
    ),
    max_size=12,
)


def encoded(
    points: list[Point], resource: dict[str, str], time_ns: int, *, delta: bool
) -> MetricsEncoder:
    encoder = MetricsEncoder(resource, ("aioprod", "1.0"), time_ns, delta=delta)
    for point in points:
        encoder.add(point)
    return encoder


@given(POINTS, LABELS, TIMES, st.booleans())
def test_opentelemetry_and_the_broker_read_what_was_written(
    points: list[Point], resource: dict[str, str], time_ns: int, delta: bool
) -> None:
    data = encoded(points, resource, time_ns, delta=delta).encoded()
    temporality = "delta" if delta else "cumulative"
    theirs = decode(data)
    assert theirs.labels == resource
    assert [tuple(each) for each in theirs.values] == [
        (
            point.name,
            frozenset(point.labels),
            point.value,
            "" if point.start_ns is None else temporality,
            point.start_ns or 0,
            time_ns,
        )
        for point in points
    ]
    labels, metrics = read_metrics(data)
    assert labels == resource
    assert [tuple(each) for each in metrics] == [
        (
            point.name,
            point.value,
            dict(point.labels),
            point.start_ns is not None,
            point.start_ns is not None and delta,
            point.start_ns or 0,
            time_ns,
        )
        for point in points
    ]


def test_not_a_number_stays_not_a_number() -> None:
    data = encoded([Point("m", math.nan, (), None)], {}, 1, delta=True).encoded()
    (value,) = decode(data).values
    assert math.isnan(value.value)


def test_values_of_a_metric_that_follow_each_other_are_one_metric() -> None:
    of: list[Labels] = [(("topic", str(number)),) for number in range(50)]
    together = encoded([Point("name" * 20, 1.0, each, 1) for each in of], {}, 2, delta=True)
    single = encoded([Point("name" * 20, 1.0, each, 1) for each in of[:1]], {}, 2, delta=True)
    assert len(together.encoded()) < 50 * (len(single.encoded()) - 80)


def test_the_size_is_known_while_metrics_are_added() -> None:
    encoder = encoded([], {"group_id": "g"}, 2, delta=True)
    before = encoder.size
    for number in range(500):
        encoder.add(Point(f"metric {number // 5}", 1.0, (("topic", f"t{number}"),), 1))
    size, real = encoder.size, len(encoder.encoded())
    assert before < 100
    assert real <= size <= 1.2 * real


def test_the_broker_refuses_what_is_cut_off_or_changed() -> None:
    points = [Point("m", 1.0, (("topic", "t"),), 5), Point("n", 2.0, (), None)]
    data = encoded(points, {"group_id": "g"}, 7, delta=True).encoded()
    for end in range(1, len(data)):
        with pytest.raises(ValueError):
            read_metrics(data[:end])
    rng = random.Random(714)
    for _ in range(500):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            read_metrics(bytes(changed))
        except ValueError:
            pass  # any other error would end the broker's connection
