"""Offsets: Spark's JSON, limits, splitting and what is lost."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import ConfigError, TopicPartition
from aioprod.spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    OffsetSpec,
    check_not_lost,
    limit_offsets,
    offsets_from_json,
    offsets_to_json,
    parse_offsets,
    plan_ranges,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))


def test_offsets_are_kept_as_spark_keeps_them() -> None:
    text = '{"a": {"0": 23, "1": 7}, "b": {"0": 0}}'
    assert offsets_from_json(json.loads(text)) == {A0: 23, A1: 7, B0: 0}
    assert json.dumps(offsets_to_json({B0: 0, A1: 7, A0: 23})) == text


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**62)))
def test_json_and_back_changes_nothing(offsets: dict[TopicPartition, int]) -> None:
    assert offsets_from_json(json.loads(json.dumps(offsets_to_json(offsets)))) == offsets


def test_words_and_explicit_offsets() -> None:
    assert parse_offsets("startingOffsets", None, default=LATEST) == OffsetSpec(LATEST)
    assert parse_offsets("startingOffsets", " Earliest ", default=LATEST) == OffsetSpec(EARLIEST)
    spec = parse_offsets("startingOffsets", '{"a":{"0":23,"1":-2}}', default=LATEST)
    assert spec.targets("startingOffsets", [A0, A1]) == {A0: 23, A1: EARLIEST}
    assert OffsetSpec(EARLIEST).targets("startingOffsets", [A0, B0]) == {A0: EARLIEST, B0: EARLIEST}


def test_explicit_offsets_must_name_exactly_what_is_read() -> None:
    spec = OffsetSpec(None, {A0: 1, B0: 2})
    with pytest.raises(ConfigError, match=r"option startingOffsets must name each partition .* missing: a-1; not read: b-0"):
        spec.targets("startingOffsets", [A0, A1])


def test_a_limit_is_shared_in_proportion_to_the_backlog() -> None:
    assert limit_offsets({A0: 100, A1: 0}, {A0: 400, A1: 100, B0: 600}, 100) == {A0: 130, A1: 10, B0: 60}


def test_a_limit_below_the_number_of_partitions_moves_each_by_one() -> None:
    assert limit_offsets({A0: 0, A1: 0, B0: 5}, {A0: 10, A1: 10, B0: 5}, 1) == {A0: 1, A1: 1, B0: 5}


@given(st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1), st.integers(1, 50))
def test_limited_batches_reach_the_end_and_never_pass_it(backlog: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    start = {tp: low for tp, (low, _) in backlog.items()}
    end = {tp: low + size for tp, (low, size) in backlog.items()}
    steps = 0
    while start != end:
        following = limit_offsets(start, end, limit)
        assert all(start[tp] <= following[tp] <= end[tp] for tp in end)
        assert following != start
        assert sum(following[tp] - start[tp] for tp in end) <= limit + len(end)
        start = following
        steps += 1
    assert steps <= sum(size for _, size in backlog.values())


def test_without_a_limit_everything_is_taken() -> None:
    assert limit_offsets({A0: 0}, {A0: 10, B0: 3}, None) == {A0: 10, B0: 3}


def test_a_task_per_partition_that_has_something() -> None:
    assert plan_ranges({A0: 0, A1: 5, B0: 2}, {A0: 10, A1: 5, B0: 3}) == [OffsetRange("a", 0, 0, 10), OffsetRange("b", 0, 2, 3)]
    assert plan_ranges({}, {}, 4) == []


@given(st.dictionaries(PARTITIONS, st.integers(1, 500), min_size=1), st.integers(1, 20))
def test_split_ranges_cover_the_same_offsets_once(sizes: dict[TopicPartition, int], min_partitions: int) -> None:
    start = dict.fromkeys(sizes, 7)
    end = {tp: 7 + size for tp, size in sizes.items()}
    ranges = plan_ranges(start, end, min_partitions)
    covered = [(item.topic, item.partition, offset) for item in ranges for offset in range(item.start, item.end)]
    assert sorted(covered) == sorted((tp.topic, tp.partition, offset) for tp in sizes for offset in range(7, end[tp]))
    assert all(item.size > 0 for item in ranges)


def test_large_partitions_are_split() -> None:
    ranges = plan_ranges({A0: 0, A1: 0}, {A0: 900, A1: 100}, 10)
    assert [item.size for item in ranges] == [100] * 10


def test_what_is_gone_is_told_and_the_start_moved() -> None:
    moved, losses = check_not_lost({A0: 5, A1: 50, B0: 3}, {A0: 10, A1: 0}, {A0: 20, A1: 40})
    assert moved == {A0: 10, A1: 40}
    assert losses == [
        "a-0 begins at offset 10 now, the query stands at 5",
        "a-1 ends at offset 40 now, the query stands at 50",
        "b-0 is gone (the query stands at offset 3)",
    ]
    assert check_not_lost({A0: 10}, {A0: 10}, {A0: 10}) == ({A0: 10}, [])
