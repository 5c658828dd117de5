"""Offsets: Spark's JSON, limits, splitting and what is lost."""

from __future__ import annotations

import itertools
import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import ConfigError, TopicPartition
from aioprod.spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    OffsetSpec,
    TimestampSpec,
    backwards,
    check_not_lost,
    limit_offsets,
    offsets_from_json,
    offsets_to_json,
    parse_offsets,
    plan_ranges,
    share_tasks,
)
from aioprod.spark.positions import Position, position_from_json, position_to_json

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
    assert parse_offsets("startingOffsets", None, default=LATEST) == OffsetSpec(
        "startingOffsets", LATEST
    )
    assert parse_offsets("startingOffsets", " Earliest ", default=LATEST) == OffsetSpec(
        "startingOffsets", EARLIEST
    )
    spec = parse_offsets("startingOffsets", '{"a":{"0":23,"1":-2}}', default=LATEST)
    assert spec.targets([A0, A1]) == {A0: 23, A1: EARLIEST}
    assert OffsetSpec("startingOffsets", EARLIEST).targets([A0, B0]) == {A0: EARLIEST, B0: EARLIEST}


def test_explicit_offsets_must_name_exactly_what_is_read() -> None:
    message = r"must name each partition .* missing: a-1; not read: b-0"
    with pytest.raises(ConfigError, match="option endingOffsets " + message):
        OffsetSpec("endingOffsets", None, {A0: 1, B0: 2}).targets([A0, A1])
    with pytest.raises(ConfigError, match="option startingOffsetsByTimestamp " + message):
        TimestampSpec("startingOffsetsByTimestamp", None, {A0: 1, B0: 2}).timestamps([A0, A1])


def test_times_of_all_partitions_or_each() -> None:
    assert TimestampSpec("startingTimestamp", 7).timestamps([A0, A1]) == {A0: 7, A1: 7}
    assert TimestampSpec("startingOffsetsByTimestamp", None, {A0: 1, A1: 2}).timestamps(
        [A0, A1]
    ) == {A0: 1, A1: 2}


def test_a_partition_without_a_record_so_late_is_read_from_its_end_or_an_error() -> None:
    found = {A0: 5, A1: LATEST}
    assert TimestampSpec("startingTimestamp", 7).targets(found) == found
    with pytest.raises(
        ConfigError,
        match=r"option startingTimestamp: no record at or after 7 in a-1\. Set .*Strategy=latest",
    ):
        TimestampSpec("startingTimestamp", 7, latest_if_none=False).targets(found)


def test_a_limit_is_shared_in_proportion_to_the_backlog() -> None:
    assert limit_offsets({A0: 100, A1: 0}, {A0: 400, A1: 100, B0: 600}, 100) == {
        A0: 130,
        A1: 10,
        B0: 60,
    }


def test_a_limit_below_the_number_of_partitions_moves_each_by_one() -> None:
    assert limit_offsets({A0: 0, A1: 0, B0: 5}, {A0: 10, A1: 10, B0: 5}, 1) == {A0: 1, A1: 1, B0: 5}


@given(
    st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1),
    st.integers(1, 50),
)
def test_limited_batches_reach_the_end_and_never_pass_it(
    backlog: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
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
    assert plan_ranges({A0: 0, A1: 5, B0: 2}, {A0: 10, A1: 5, B0: 3}) == [
        OffsetRange("a", 0, 0, 10),
        OffsetRange("b", 0, 2, 3),
    ]
    assert plan_ranges({}, {}, 4) == []


@given(
    st.dictionaries(PARTITIONS, st.integers(1, 500), min_size=1),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 200),
)
def test_split_ranges_cover_the_same_offsets_once(
    sizes: dict[TopicPartition, int], min_partitions: int | None, max_records: int | None
) -> None:
    start = dict.fromkeys(sizes, 7)
    end = {tp: 7 + size for tp, size in sizes.items()}
    ranges = plan_ranges(start, end, min_partitions, max_records)
    covered = [
        (item.topic, item.partition, offset)
        for item in ranges
        for offset in range(item.start, item.end)
    ]
    assert sorted(covered) == sorted(
        (tp.topic, tp.partition, offset) for tp in sizes for offset in range(7, end[tp])
    )
    assert all(0 < item.size <= (max_records or 500) for item in ranges)


# test_spark_source_equality.py compares with Spark itself.
@pytest.mark.parametrize(
    ("sizes", "min_partitions", "max_records", "tasks"),
    [
        ((900, 100), 10, None, [100] * 10),
        ((1,), 4, None, [1]),
        ((5,), 3, None, [1, 2, 2]),
        ((1, 1, 100), 3, None, [1, 1, 100]),
        # The small range gets a separate task, and the others share the remaining tasks.
        ((1, 100), 4, None, [1, 33, 33, 34]),
        ((9, 91), 10, None, [9, 10, 10, 10, 10, 10, 10, 10, 10, 11]),
        ((100, 10), None, 50, [50, 50, 10]),
        ((100, 10), None, 60, [50, 50, 10]),
        ((100, 10), 2, 50, [50, 50, 10]),
        # Both limits apply: first pieces of at most 50 records, then each is split again.
        ((100, 10), 6, 50, [16, 17, 17, 16, 17, 17, 10]),
    ],
)
def test_tasks_are_as_many_and_as_large_as_sparks(
    sizes: tuple[int, ...], min_partitions: int | None, max_records: int | None, tasks: list[int]
) -> None:
    end = {TopicPartition("t", number): size for number, size in enumerate(sizes)}
    ranges = plan_ranges(dict.fromkeys(end, 0), end, min_partitions, max_records)
    assert sorted(item.size for item in ranges) == sorted(tasks)


@given(
    st.lists(st.integers(1, 30), max_size=30),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(40, 60),
)
def test_small_ranges_share_tasks_and_each_is_read_once(
    sizes: list[int], min_records: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange("t", number, 7, 7 + size) for number, size in enumerate(sizes)]
    tasks = share_tasks(ranges, min_records, max_records)
    numbers = [[item.partition for item in task] for task in tasks]
    assert sorted(itertools.chain.from_iterable(numbers)) == [item.partition for item in ranges]
    assert all(task == sorted(task) for task in numbers)
    assert all(sum(item.size for item in task) <= (max_records or 100) for task in tasks)
    if min_records is None:
        assert all(len(task) == 1 for task in tasks)
    elif max_records is None:
        shared = [task for task in tasks if task[0].size < min_records]
        totals = [sum(item.size for item in task) for task in shared]
        assert all(total >= min_records for total in totals[:-1])
        assert all(sum(item.size for item in task[:-1]) < min_records for task in shared)
    assert all(len(task) == 1 for task in tasks if task[0].size >= (min_records or 0))


@pytest.mark.parametrize(
    ("sizes", "min_records", "max_records", "tasks"),
    [
        ((1, 2, 3), 100, None, [(1, 2, 3)]),
        ((1, 200, 3), 100, None, [(200,), (1, 3)]),
        ((60, 60, 60), 100, None, [(60, 60), (60,)]),
        ((60, 60, 60), 100, 100, [(60,), (60,), (60,)]),
        ((), 100, None, []),
    ],
)
def test_tasks_of_small_partitions(
    sizes: tuple[int, ...], min_records: int, max_records: int | None, tasks: list[tuple[int, ...]]
) -> None:
    ranges = [OffsetRange("t", number, 0, size) for number, size in enumerate(sizes)]
    found = share_tasks(ranges, min_records, max_records)
    assert [tuple(item.size for item in task) for task in found] == tasks


def test_a_query_that_stands_after_the_end_or_nowhere_is_reported() -> None:
    assert backwards({A0: 5, A1: 50, B0: 3}, {A0: 5, A1: 40}) == [
        "b-0 is gone (the query stands at offset 3)",
        "a-1 ends at offset 40 now, the query stands at 50",
    ]


def test_what_is_gone_is_reported_and_the_start_moved() -> None:
    moved, losses = check_not_lost({A0: 5, A1: 50, B0: 3}, {A0: 10, A1: 0}, {A0: 20, A1: 40})
    assert moved == {A0: 10, A1: 40}
    assert losses == [
        "a-0 begins at offset 10 now, the query stands at 5",
        "a-1 ends at offset 40 now, the query stands at 50",
        "b-0 is gone (the query stands at offset 3)",
    ]
    assert check_not_lost({A0: 10}, {A0: 10}, {A0: 10}) == ({A0: 10}, [])


def test_a_position_keeps_the_ids_of_topics_where_sparks_connector_reads_past_them() -> None:
    ids = {"a": uuid.UUID(int=5), "b": uuid.UUID(int=6)}
    position = Position({A0: 23, A1: 7, B0: 0}, ids)
    nested = position_to_json(position)
    assert nested == {
        "a": {"0": 23, "1": 7},
        "b": {"0": 0},
        "a#00000000-0000-0000-0000-000000000005": {},
        "b#00000000-0000-0000-0000-000000000006": {},
    }
    assert position_from_json(json.loads(json.dumps(nested))) == position
    assert offsets_from_json(nested) == position.offsets
    assert position_from_json({"a": {"0": 23}}) == Position({A0: 23}, {})


def test_the_end_of_a_micro_batch_may_be_copied_into_an_option() -> None:
    position = Position({A0: 23, A1: 7}, {"a": uuid.UUID(int=5)})
    text = json.dumps(position_to_json(position))
    assert parse_offsets("startingOffsets", text, default=EARLIEST).explicit == position.offsets
    for wrong in ('{"a#b": {"0": 1}}', '{"a#b": {}}', '{"a": {"0": 1}, "#": 5}'):
        with pytest.raises(ConfigError, match="option startingOffsets must be"):
            parse_offsets("startingOffsets", wrong, default=EARLIEST)


def test_offsets_of_a_topic_that_was_created_again_are_not_valid() -> None:
    before = Position({A0: 23, B0: 4}, {"a": uuid.UUID(int=5), "b": uuid.UUID(int=6)})
    later = Position({A0: 99, B0: 4}, {"a": uuid.UUID(int=7), "b": uuid.UUID(int=6)})
    assert before.recreated(later) == {"a"} and before.valid_in(later) == {B0: 4}
    assert before.losses(later)[0].startswith("topic a was deleted and created again")
    # Unknown ids say nothing.
    for unknown in (Position(later.offsets, {}), Position(later.offsets, {"c": uuid.UUID(int=1)})):
        assert before.recreated(unknown) == unknown.recreated(before) == set()
