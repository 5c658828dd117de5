"""The driver plans micro-batches, and tasks read them. Both are called directly: against the
embedded broker, without a JVM.
"""

from __future__ import annotations

import json
import logging
import pickle
import threading
from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.datasource import InputPartition

from aioprod import (
    BrokerConnectionError,
    BrokerError,
    ConfigError,
    ErrorCode,
    KafkaError,
    TopicPartition,
)
from aioprod.consumer import reader_retries
from aioprod.protocol.api_keys import ApiKey
from aioprod.spark import group_positions
from aioprod.spark._versions import ReadAllAvailable, ReadMaxRows, ReadMinRows
from aioprod.spark.admission import Admission, TriggerLimits
from aioprod.spark.offsets import DataLossError, OffsetRange
from aioprod.spark.readers import KafkaReader, KafkaStreamReader, RangePartition
from aioprod.spark.reading import read_ranges
from aioprod.spark.source_options import SourceOptions
from aioprod.testing import EmbeddedCluster, ThreadedCluster, close, fail

from .source_topics import (
    options_of,
    ranges_of,
    read,
    send,
    stream,
    stream_values,
    values,
    without_ids,
)

ALL = [f"{p}{n}" for p in range(3) for n in range(10)]
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture
def broker() -> Iterator[ThreadedCluster]:
    """A broker with the topic ``t`` of three partitions, each with the ten values p0 to p9."""
    with EmbeddedCluster.in_thread() as running:
        fill(running)
        yield running


def fill(broker: ThreadedCluster) -> None:
    broker.create_topic("t", 3)
    send(
        broker.bootstrap_servers, "t", value=ALL, partition=[p for p in range(3) for _ in range(10)]
    )


@pytest.fixture
def servers(broker: ThreadedCluster) -> str:
    return broker.bootstrap_servers


def test_a_batch_read_gives_every_record_once(servers: str) -> None:
    assert read(servers, subscribe="t") == ALL
    assert read(servers, subscribe="t", minPartitions="7") == ALL
    assert read(servers, subscribe="t", maxRecordsPerPartition="4") == ALL
    assert read(servers, subscribe="t", minRecordsPerPartition="25") == ALL


def test_explicit_offsets_bound_a_batch_read(servers: str) -> None:
    found = read(
        servers,
        subscribe="t",
        startingOffsets='{"t":{"0":8,"1":-2,"2":-1}}',
        endingOffsets='{"t":{"0":-1,"1":2,"2":10}}',
    )
    assert found == ["08", "09", "10", "11"]


def test_an_end_before_the_start_is_refused(servers: str) -> None:
    with pytest.raises(
        ConfigError, match="t-1 is to be read from offset 5 up to 2: the start is after the end"
    ):
        read(
            servers,
            subscribe="t",
            startingOffsets='{"t":{"0":1,"1":5,"2":1}}',
            endingOffsets='{"t":{"0":1,"1":2,"2":1}}',
        )


def test_assigned_partitions_and_patterns(broker: ThreadedCluster, servers: str) -> None:
    broker.create_topic("other", 1)
    assert read(servers, assign='{"t":[2,0]}') == ALL[:10] + ALL[20:]
    assert read(servers, subscribePattern="[st]") == ALL
    with pytest.raises(BrokerError, match="option assign names t-9"):
        read(servers, assign='{"t":[0,9]}')
    with pytest.raises(ConfigError, match="option subscribePattern=nothing matches no topic"):
        read(servers, subscribePattern="nothing")


def test_an_unknown_topic_is_named(broker: ThreadedCluster, servers: str) -> None:
    # A busy machine may need the whole limit for one attempt.
    with pytest.raises(KafkaError, match="topic 'nowhere': UNKNOWN_TOPIC_OR_PARTITION"):
        read(servers, subscribe="nowhere", **{"kafka.default.api.timeout.ms": "300"})
    assert "nowhere" not in broker.topics


def test_offsets_that_are_gone_fail_or_are_skipped_with_a_warning(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    starting = '{"t":{"0":50,"1":0,"2":0}}'
    with pytest.raises(
        DataLossError,
        match=(
            r"t-0 ends at offset 10 now, the query stands at 50. Set the option "
            r"failOnDataLoss=false"
        ),
    ):
        read(servers, subscribe="t", startingOffsets=starting)
    with pytest.raises(DataLossError, match="t-1 ends at offset 10, endingOffsets asks for 99"):
        read(servers, subscribe="t", endingOffsets='{"t":{"0":1,"1":99,"2":1}}')
    with caplog.at_level(logging.WARNING):
        assert (
            read(servers, subscribe="t", startingOffsets=starting, failOnDataLoss="false")
            == ALL[10:]
        )
    assert "data loss ignored" in caplog.text


def test_a_batch_whose_first_records_expired_fails_or_begins_later(
    broker: ThreadedCluster, servers: str
) -> None:
    broker.delete_records("t", 0, 4)
    starting = '{"t":{"0":0,"1":10,"2":10}}'
    with pytest.raises(DataLossError, match="t-0 begins at offset 4 now, the query stands at 0"):
        read(servers, subscribe="t", startingOffsets=starting)
    assert (
        read(servers, subscribe="t", startingOffsets=starting, failOnDataLoss="false") == ALL[4:10]
    )
    assert read(servers, subscribe="t") == ALL[4:]


def test_a_task_whose_offsets_are_gone_fails_or_ends_with_a_warning(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = [OffsetRange("t", 0, 500, 510)]
    with pytest.raises(DataLossError, match="at offset 500: the log has offsets 0 to 10"):
        values(options_of(servers, subscribe="t"), lost)
    with caplog.at_level(logging.WARNING):
        assert values(options_of(servers, subscribe="t", failOnDataLoss="false"), lost) == []
    assert "data loss ignored" in caplog.text


def test_a_task_whose_first_records_expired_goes_on_with_the_others(
    broker: ThreadedCluster, servers: str
) -> None:
    broker.delete_records("t", 0, 4)
    assert (
        values(
            options_of(servers, subscribe="t", failOnDataLoss="false"), [OffsetRange("t", 0, 2, 8)]
        )
        == ALL[4:8]
    )


def test_a_task_survives_lost_connections(broker: ThreadedCluster, servers: str) -> None:
    options = options_of(servers, subscribe="t")
    ranges = ranges_of(options)
    broker.on(ApiKey.FETCH, close())
    broker.on(ApiKey.FETCH, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert values(options, ranges) == ALL


def test_a_task_waits_for_brokers_that_are_away_for_a_moment(
    broker: ThreadedCluster, servers: str
) -> None:
    options = options_of(servers, subscribe="t", **{"kafkaConsumer.pollTimeoutMs": "300"})
    ranges = ranges_of(options)
    broker.stop_node(broker.node_ids[0])
    with pytest.raises(BrokerConnectionError, match="no broker responds"):
        values(options, ranges)
    back = threading.Timer(0.3, broker.start_node, broker.node_ids)
    back.start()
    assert values(options_of(servers, subscribe="t"), ranges) == ALL
    back.join()


def test_a_task_that_is_stopped_early_closes_its_connections(servers: str) -> None:
    batches = read_ranges(options_of(servers, subscribe="t"), [OffsetRange("t", 0, 0, 10)])
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    assert list(batches) == []


def test_sparks_single_empty_partition_reads_nothing(servers: str) -> None:
    assert list(KafkaReader(options_of(servers, subscribe="t")).read(InputPartition(None))) == []


def test_headers_only_where_asked_for(servers: str) -> None:
    given = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    headers = pa.array([given], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    send(servers, "with-headers", value=["x"], headers=headers)
    for include, expected in (("true", given), ("false", None)):
        options = options_of(servers, subscribe="with-headers", includeHeaders=include)
        (batch,) = read_ranges(options, [OffsetRange("with-headers", 0, 0, 1)])
        assert batch.to_pylist()[0].get("headers") == expected


# -- streams ---------------------------------------------------------------------------------------


def offsets(*ends: int) -> dict[str, dict[str, int]]:
    return {"t": {str(partition): end for partition, end in enumerate(ends)}}


def test_a_stream_begins_at_the_reported_offsets(servers: str) -> None:
    for options, expected in (
        ({}, offsets(10, 10, 10)),
        ({"startingOffsets": "earliest"}, offsets(0, 0, 0)),
        ({"startingOffsets": '{"t":{"0":3,"1":-1,"2":-2}}'}, offsets(3, 10, 0)),
    ):
        with stream(servers, subscribe="t", **options) as reader:
            assert without_ids(reader.initialOffset()) == expected


def test_one_task_reads_several_small_partitions(servers: str) -> None:
    given = {"subscribe": "t", "minRecordsPerPartition": "20"}
    batch = KafkaReader(options_of(servers, **given))
    tasks = [task for task in batch.partitions() if isinstance(task, RangePartition)]
    assert [len(task.items) for task in tasks] == [2, 1]
    rows = [rows for task in tasks for rows in batch.read(task)]
    assert [value.decode() for each in rows for value in each["value"].to_pylist()] == ALL
    with stream(servers, **given, startingOffsets="earliest") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert len(reader.partitions(start, end)) == 2
        assert stream_values(reader, start, end) == ALL


def test_a_task_reads_many_partitions_in_their_order_or_reports_what_is_lost(
    broker: ThreadedCluster, servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("many", 20)
    numbers = [number for number in range(20) for _ in range(2)]
    expected = [f"{number}" for number in numbers]
    send(servers, "many", value=expected, partition=numbers)
    given = {"subscribe": "many", "minRecordsPerPartition": "100"}
    options = options_of(servers, **given)
    items = ranges_of(options)
    (task,) = KafkaReader(options).partitions()
    assert isinstance(task, RangePartition) and task.items == tuple(items)

    def found(options: SourceOptions) -> list[str]:
        batches = read_ranges(options, items)
        return [value.decode() for rows in batches for value in rows["value"].to_pylist()]

    assert found(options) == expected
    broker.delete_records("many", 5, 2)
    with pytest.raises(DataLossError, match="many-5"):
        found(options)
    with caplog.at_level(logging.WARNING):
        rest = found(options_of(servers, **given, failOnDataLoss="false"))
    assert rest == [value for value in expected if value != "5"]
    assert "data loss ignored" in caplog.text


def test_micro_batches_are_limited_and_reach_the_end(servers: str) -> None:
    with stream(servers, subscribe="t", maxOffsetsPerTrigger="12") as reader:
        limit = reader.getDefaultReadLimit()
        assert isinstance(limit, ReadMaxRows) and limit.max_rows == 12
        assert without_ids(reader.latestOffset(offsets(0, 0, 0), limit)) == offsets(4, 4, 4)
        assert without_ids(reader.latestOffset(offsets(9, 10, 10), limit)) == offsets(10, 10, 10)
        assert without_ids(reader.latestOffset(offsets(10, 10, 10), limit)) == offsets(10, 10, 10)
        assert without_ids(reader.latestOffset(offsets(0, 0, 0), ReadAllAvailable())) == offsets(
            10, 10, 10
        )
    with stream(servers, subscribe="t") as reader:
        assert isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)


def test_the_current_end_is_reported_with_any_limit(servers: str) -> None:
    with stream(servers, subscribe="t", maxOffsetsPerTrigger="12") as reader:
        assert reader.reportLatestOffset() is None
        reader.latestOffset(offsets(0, 0, 0), reader.getDefaultReadLimit())
        assert without_ids(reader.reportLatestOffset()) == offsets(10, 10, 10)


def test_too_few_records_wait_until_the_longest_delay_has_passed() -> None:
    admission = Admission(TriggerLimits(max_offsets=20, min_offsets=10, max_delay_ms=5_000))
    assert admission.end({A0: 0}, {A0: 3}, now=100.0) == {A0: 3}, "the first one does not wait"
    assert admission.end({A0: 3}, {A0: 12}, now=104.9) is None
    assert admission.end({A0: 3}, {A0: 13}, now=104.9) == {A0: 13}
    assert admission.end({A0: 13, A1: 4}, {A0: 14, A1: 8}, now=109.8) is None
    assert admission.end({A0: 13, A1: 4}, {A0: 14, A1: 8}, now=109.9) == {A0: 14, A1: 8}
    assert admission.end({A0: 13, A1: 0}, {A0: 33, A1: 20}, now=109.9) == {A0: 23, A1: 10}


def test_a_stream_with_a_least_number_of_records_waits_where_it_stands(
    broker: ThreadedCluster, servers: str
) -> None:
    with stream(servers, subscribe="t", minOffsetsPerTrigger="5") as reader:
        limit = reader.getDefaultReadLimit()
        assert isinstance(limit, ReadMinRows) and limit.min_rows == 5
        assert without_ids(reader.latestOffset(offsets(9, 10, 10), limit)) == offsets(10, 10, 10)
        broker.add_partitions("t", 4)
        send(servers, "t", value=["new"] * 4, partition=[0, 1, 3, 3])
        assert without_ids(reader.latestOffset(offsets(10, 10, 10), limit)) == offsets(10, 10, 10)
        send(servers, "t", value=["new"], partition=[2])
        assert without_ids(reader.latestOffset(offsets(10, 10, 10), limit)) == offsets(
            11, 11, 11, 2
        )


def test_available_now_stops_at_what_was_there_and_leaves_no_rest(servers: str) -> None:
    with stream(
        servers, subscribe="t", minOffsetsPerTrigger="7", maxOffsetsPerTrigger="28"
    ) as reader:
        reader.prepareForTriggerAvailableNow()
        send(servers, "t", value=["later"], partition=[0])
        limit = reader.getDefaultReadLimit()
        assert without_ids(reader.latestOffset(offsets(0, 0, 0), limit)) == offsets(9, 9, 9)
        assert without_ids(reader.latestOffset(offsets(9, 9, 9), limit)) == offsets(10, 10, 10)
        assert without_ids(reader.latestOffset(offsets(10, 10, 10), limit)) == offsets(10, 10, 10)
    with stream(servers, subscribe="t") as reader:
        assert without_ids(reader.latestOffset(offsets(0, 0, 0), ReadAllAvailable())) == offsets(
            11, 10, 10
        )


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_without_read_limits_a_limit_is_refused(servers: str, option: str) -> None:
    with stream(servers, subscribe="t") as reader:
        assert without_ids(reader.latestOffset()) == offsets(10, 10, 10)
    with (
        stream(servers, subscribe="t", **{option: "5"}) as reader,
        pytest.raises(ConfigError, match=r"need PySpark 4\.2 or newer, this is \d"),
    ):
        reader.latestOffset()


def test_a_partition_that_is_new_is_read_from_its_first_record(servers: str) -> None:
    start = {"t": {"0": 10, "1": 10}}
    with stream(servers, subscribe="t") as reader:
        assert without_ids(reader.latestOffset(start, ReadAllAvailable())) == offsets(10, 10, 10)
        (partition,) = reader.partitions(start, offsets(10, 10, 10))
        assert partition.value == [("t", 2, 0, 10)]
        assert stream_values(reader, start, offsets(10, 10, 10)) == ALL[20:]


def test_a_new_partition_that_lost_its_first_records_fails_a_stream_or_begins_later(
    broker: ThreadedCluster, servers: str
) -> None:
    broker.delete_records("t", 2, 4)
    start = {"t": {"0": 10, "1": 10}}
    with (
        stream(servers, subscribe="t") as reader,
        pytest.raises(DataLossError, match="t-2 is new and begins at offset 4"),
    ):
        reader.partitions(start, offsets(10, 10, 10))
    with stream(servers, subscribe="t", failOnDataLoss="false") as reader:
        assert stream_values(reader, start, offsets(10, 10, 10)) == ALL[24:]


def test_a_pattern_finds_topics_that_come_later_and_none_at_first(
    broker: ThreadedCluster, servers: str
) -> None:
    with stream(servers, subscribePattern="late-.*") as reader:
        assert without_ids(reader.initialOffset()) == {}
        assert without_ids(reader.latestOffset({}, ReadAllAvailable())) == {}
        broker.create_topic("late-1", 1)
        broker.create_topic("other-1", 1)
        send(servers, "late-1", value=["first"])
        end = reader.latestOffset({}, ReadAllAvailable())
        assert without_ids(end) == {"late-1": {"0": 1}}
        assert stream_values(reader, {}, end) == ["first"]


def test_a_stream_whose_partition_is_gone_fails_or_goes_on(servers: str) -> None:
    start = offsets(10, 10, 10, 5)
    with (
        stream(servers, subscribe="t") as reader,
        pytest.raises(DataLossError, match=r"t-3 is gone \(the query stands at offset 5\)"),
    ):
        reader.latestOffset(start, ReadAllAvailable())
    with stream(servers, subscribe="t", failOnDataLoss="false") as reader:
        assert without_ids(reader.latestOffset(start, ReadAllAvailable())) == offsets(10, 10, 10)
        assert reader.partitions(start, offsets(10, 10, 10)) == []


def test_a_topic_that_lost_records_fails_a_stream_or_is_read_on_from_its_present_end(
    servers: str,
) -> None:
    start = offsets(10, 30, 10)
    with (
        stream(servers, subscribe="t") as reader,
        pytest.raises(DataLossError, match="t-1 ends at offset 10 now, the query stands at 30"),
    ):
        reader.latestOffset(start, ReadAllAvailable())
    with stream(servers, subscribe="t", failOnDataLoss="false", maxOffsetsPerTrigger="5") as reader:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert without_ids(end) == offsets(10, 10, 10)
        assert reader.partitions(start, end) == []
        send(servers, "t", value=["on"], partition=[1])
        following = reader.latestOffset(end, reader.getDefaultReadLimit())
        assert stream_values(reader, end, following) == ["on"]


def made_again(broker: ThreadedCluster, servers: str, records: int) -> list[str]:
    """Create the topic again, with fewer or more records than before; return their values."""
    broker.delete_topic("t")
    broker.create_topic("t", 3)
    values = [f"new {number:02}" for number in range(records)]
    send(servers, "t", value=values, partition=[number % 3 for number in range(records)])
    return values


@pytest.mark.parametrize("records", [3, 30, 60], ids=["fewer", "as many", "more"])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_topic_that_was_created_again_fails_a_stream_or_is_read_from_its_first_record(
    broker: ThreadedCluster, servers: str, records: int, restarted: bool
) -> None:
    quick = {"subscribe": "t", "fetchOffset.retryIntervalMs": "1"}
    with (
        stream(servers, **quick) as strict,
        stream(servers, failOnDataLoss="false", **quick) as reader,
        stream(servers, failOnDataLoss="false", **quick) as another,
    ):
        start = reader.latestOffset(offsets(0, 0, 0), ReadAllAvailable())
        checkpoint = json.loads(json.dumps(start))
        assert without_ids(checkpoint) == offsets(10, 10, 10)
        values = made_again(broker, servers, records)
        with pytest.raises(
            DataLossError,
            match=(
                r"topic t was deleted and created again \(topic id .*\): the query's offsets are "
                r"those of the deleted topic \(partition 0: 10, partition 1: 10, partition 2: 10\)"
                r".* read from its first record. Set the option failOnDataLoss=false"
            ),
        ):
            strict.latestOffset(checkpoint, ReadAllAvailable())
        reading = another if restarted else reader
        end = reading.latestOffset(checkpoint, ReadAllAvailable())
        with pytest.raises(DataLossError, match="topic t was deleted and created again"):
            strict.partitions(checkpoint, end)
        assert sorted(stream_values(reading, checkpoint, end)) == values
        assert stream_values(reading, end, reading.latestOffset(end, ReadAllAvailable())) == []


def test_a_task_reads_no_other_topic_than_its_batch_was_planned_for(
    broker: ThreadedCluster,
    servers: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_retries, "UNKNOWN_TOPIC_LIMIT_S", 0.2)
    with stream(servers, subscribe="t") as reader:
        end = reader.latestOffset(offsets(0, 0, 0), ReadAllAvailable())
        tasks = reader.partitions(offsets(0, 0, 0), end)
        made_again(broker, servers, 30)
        with pytest.raises(DataLossError, match="topic 't' was deleted and created again"):
            list(reader.read(tasks[0]))
    with stream(servers, subscribe="t", failOnDataLoss="false") as reader:
        assert stream_values(reader, offsets(0, 0, 0), end) == []
    assert "data loss ignored" in caplog.text


def test_a_checkpoint_of_sparks_connector_gets_ids_with_the_next_records(servers: str) -> None:
    with stream(servers, subscribe="t") as reader:
        start = offsets(10, 10, 10)
        assert reader.latestOffset(start, ReadAllAvailable()) == start, "no micro-batch of nothing"
        end = reader.latestOffset(offsets(10, 9, 10), ReadAllAvailable())
        assert len(end) == 2 and end != without_ids(end)
        assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_an_end_that_went_back_for_a_moment_is_requested_again(
    broker: ThreadedCluster, servers: str
) -> None:
    start = offsets(10, 10, 11)
    with stream(servers, subscribe="t") as reader:
        with pytest.raises(DataLossError):
            reader.latestOffset(start, ReadAllAvailable())
        assert broker.request_count(ApiKey.LIST_OFFSETS) == 3
    with (
        stream(servers, subscribe="t", **{"fetchOffset.numRetries": "1"}) as reader,
        pytest.raises(DataLossError),
    ):
        reader.latestOffset(start, ReadAllAvailable())
    assert broker.request_count(ApiKey.LIST_OFFSETS) == 4


def test_the_driver_keeps_its_connections_and_replaces_those_that_ended(
    broker: ThreadedCluster, servers: str
) -> None:
    with stream(servers, subscribe="t") as reader:
        for _ in range(3):
            assert without_ids(
                reader.latestOffset(offsets(0, 0, 0), ReadAllAvailable())
            ) == offsets(10, 10, 10)
        handshakes = broker.request_count(ApiKey.API_VERSIONS)
        broker.on(ApiKey.METADATA, close())
        assert without_ids(reader.latestOffset(offsets(0, 0, 0), ReadAllAvailable())) == offsets(
            10, 10, 10
        )
        assert 0 < broker.request_count(ApiKey.API_VERSIONS) - handshakes <= 2


def test_a_reader_that_was_not_asked_yet_goes_to_the_tasks(servers: str) -> None:
    reader: KafkaStreamReader = pickle.loads(
        pickle.dumps(KafkaStreamReader(options_of(servers, True, subscribe="t")))
    )
    (partition,) = reader.partitions(offsets(10, 10, 8), offsets(10, 10, 10))
    reader.stop()
    assert [batch.num_rows for batch in pickle.loads(pickle.dumps(reader.read))(partition)] == [2]


# -- consumer groups -------------------------------------------------------------------------------


def test_positions_are_committed_when_a_micro_batch_is_done(
    broker: ThreadedCluster, servers: str
) -> None:
    with stream(servers, subscribe="t", **{"kafka.group.id": "watched"}) as reader:
        reader.latestOffset(offsets(0, 0, 0), ReadAllAvailable())
        assert broker.committed_offsets("watched") == {TopicPartition("t", p): 0 for p in range(3)}
        reader.commit(offsets(10, 10, 4))
        assert broker.committed_offsets("watched") == {
            TopicPartition("t", p): end for p, end in enumerate((10, 10, 4))
        }
        commits = broker.request_count(ApiKey.OFFSET_COMMIT)
        reader.latestOffset(offsets(10, 10, 4), ReadAllAvailable())
        assert broker.request_count(ApiKey.OFFSET_COMMIT) == commits, (
            "what is committed is not committed again"
        )


def test_a_group_that_takes_no_commit_is_reported_once_and_fails_no_query(
    broker: ThreadedCluster, servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.set_group_members("watched", 3, {"member": None})
    with stream(servers, subscribe="t", **{"kafka.group.id": "watched"}) as reader:
        for end in (4, 5):
            reader.commit(offsets(end, end, end))
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == (
        "positions are not committed to the consumer group 'watched': group 'watched': "
        "UNKNOWN_MEMBER_ID (25): "
        "the member is not in the group; join again. It has members: kafka.group.id "
        "must name a group that no consumer is in"
    )


def test_a_coordinator_that_keeps_silent_does_not_delay_the_query(
    broker: ThreadedCluster,
    servers: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_positions, "LIMIT_S", 0.2)
    broker.on(ApiKey.OFFSET_COMMIT, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), times=None)
    with stream(servers, subscribe="t", **{"kafka.group.id": "watched"}) as reader:
        reader.commit(offsets(4, 4, 4))
        assert "not committed to the consumer group 'watched'" in caplog.text
        broker.clear_rules()
        reader.commit(offsets(4, 4, 4))
    assert broker.committed_offsets("watched") == {TopicPartition("t", p): 4 for p in range(3)}


def test_a_broker_that_is_gone_fails_no_commit(
    broker: ThreadedCluster, servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    with stream(
        servers, subscribe="t", **{"kafka.group.id": "watched", "kafka.request.timeout.ms": "200"}
    ) as reader:
        broker.stop_node(broker.node_ids[0])
        reader.commit(offsets(4, 4, 4))
    assert "positions are not committed" in caplog.text
