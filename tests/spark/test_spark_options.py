"""Options of the data source: what is accepted, and that a wrong one says what to write instead."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from aioprod import ConfigError, ConsumerConfig, ProducerConfig, TopicPartition
from aioprod.spark import options as spark_options
from aioprod.spark.admission import TriggerLimits
from aioprod.spark.offsets import EARLIEST, LATEST, OffsetSpec, TimestampSpec
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source import KafkaDataSource, source_columns
from aioprod.spark.source_options import (
    SourceOptions,
    client_config,
    fetch_settings,
    parse_source_options,
    wants_headers,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
SOURCE = {**SERVERS, "subscribe": "events"}
JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" '
    'password="s3cret";'
)


def source(streaming: bool = False, /, **more: str) -> SourceOptions:
    return parse_source_options(
        {**SOURCE, **{name.replace("__", "."): value for name, value in more.items()}},
        streaming=streaming,
    )


def test_a_batch_reads_from_earliest_to_latest_and_a_stream_from_latest() -> None:
    assert source().starting == OffsetSpec("startingOffsets", EARLIEST)
    assert source().ending == OffsetSpec("endingOffsets", LATEST)
    assert source(True).starting == OffsetSpec("startingOffsets", LATEST)
    assert source().fail_on_data_loss
    assert not source().include_headers


def test_a_login_in_javas_way_is_taken_by_reads_and_writes() -> None:
    security = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
    }
    read = client_config(parse_source_options(SOURCE | security, streaming=True).client)
    write = parse_sink_options(SERVERS | security).producer
    for config in (ConsumerConfig(**read), ProducerConfig(**write)):
        assert (config.sasl_username, config.sasl_password) == ("alice", "s3cret")


def test_kerberos_and_delegation_tokens_are_taken_by_reads_and_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))
    keytab = tmp_path / "orders.keytab"
    keytab.touch()
    module = "com.sun.security.auth.module.Krb5LoginModule"
    kerberos = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": "broker",
        "kafka.sasl.jaas.config": f'{module} required useKeyTab=true keyTab="{keytab}";',
    }
    token = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": "id",
        "kafka.sasl.password": "hmac",
        "kafka.sasl.delegation.token": "true",
    }
    for security, names in (
        (kerberos, {"sasl_kerberos_service_name": "broker", "sasl_kerberos_keytab": str(keytab)}),
        (token, {"sasl_username": "id", "sasl_delegation_token": True}),
    ):
        read = client_config(parse_source_options(SOURCE | security, streaming=True).client)
        write = parse_sink_options(SERVERS | security).producer
        for config in (ConsumerConfig(**read), ProducerConfig(**write)):
            assert {name: getattr(config, name) for name in names} == names


def test_names_do_not_mind_their_case_as_in_spark() -> None:
    given = {
        "KAFKA.Bootstrap.Servers": "a:1",
        "SUBSCRIBE": "x",
        "startingoffsets": "EARLIEST",
        "INCLUDEHEADERS": "True",
        "MaxOffsetsPerTrigger": "7",
    }
    options = parse_source_options(given, streaming=True)
    assert options.bootstrap_servers == "a:1"
    assert options.starting == OffsetSpec("startingOffsets", EARLIEST)
    assert options.include_headers
    assert wants_headers(given)
    assert options.limits.max_offsets == 7


def test_topics_by_name_partition_and_pattern() -> None:
    assert source(subscribe=" a, b,a ").selection.topics == ("a", "b")
    assigned = parse_source_options(
        {**SERVERS, "assign": '{"b":[1],"a":[2,0]}'}, streaming=False
    ).selection
    assert assigned.partitions == (
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 1),
    )
    assert (
        parse_source_options(
            {**SERVERS, "subscribePattern": "ev.*"}, streaming=False
        ).selection.pattern
        == "ev.*"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"subscribe": "a"},
            r'kafka\.bootstrap\.servers is required, for example "localhost:9092"',
        ),
        (
            SERVERS,
            "exactly one of the options subscribe, assign, subscribePattern is required, got none",
        ),
        ({**SOURCE, "assign": '{"a":[0]}'}, "got subscribe, assign"),
        ({**SERVERS, "subscribe": " , "}, "names no topic"),
        ({**SERVERS, "subscribePattern": "["}, "not a regular expression"),
        ({**SERVERS, "assign": "[0]"}, "option assign must be JSON like"),
        ({**SERVERS, "assign": '{"a":["0"]}'}, "option assign must be JSON like"),
        ({**SERVERS, "assign": '{"a":[-1]}'}, "option assign must be JSON like"),
        ({**SERVERS, "assign": "{}"}, "option assign must be JSON like"),
        (
            {**SOURCE, "startingOffset": "earliest"},
            r"unknown option startingoffset; did you mean startingOffsets\?",
        ),
        ({**SOURCE, "quux": "1"}, "unknown option quux$"),
        ({**SOURCE, "topic": "a"}, "option topic is for writes only, this is a read"),
        (
            {**SOURCE, "groupIdPrefix": "g"},
            (
                "groupIdPrefix of Spark's Kafka connector is not supported: reads join "
                "no consumer group"
            ),
        ),
        (
            {**SOURCE, "startingTimestamp": "soon"},
            "option startingTimestamp must be a whole number of at least 0",
        ),
        (
            {**SOURCE, "startingTimestamp": "-1"},
            "option startingTimestamp must be a whole number of at least 0",
        ),
        (
            {**SOURCE, "startingOffsetsByTimestamp": "7"},
            r'startingOffsetsByTimestamp must be JSON like \{"topic":',
        ),
        (
            {**SOURCE, "endingOffsetsByTimestamp": '{"a":{"0":-1}}'},
            "endingOffsetsByTimestamp must be JSON",
        ),
        (
            {**SOURCE, "startingOffsetsByTimestampStrategy": "earliest"},
            "must be error or latest, got 'earliest'",
        ),
        (
            {**SOURCE, "minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "7"},
            "minOffsetsPerTrigger=8 is above maxOffsetsPerTrigger=7",
        ),
        (
            {**SOURCE, "maxTriggerDelay": "soon"},
            "option maxTriggerDelay must be a time such as 500ms",
        ),
        ({**SOURCE, "maxRecordsPerPartition": "0"}, "must be a whole number of at least 1"),
        ({**SOURCE, "minRecordsPerPartition": "0"}, "must be a whole number of at least 1"),
        (
            {**SOURCE, "minRecordsPerPartition": "9", "minPartitions": "2"},
            "minRecordsPerPartition and minPartitions can't be combined",
        ),
        (
            {**SOURCE, "minRecordsPerPartition": "9", "maxRecordsPerPartition": "8"},
            "minRecordsPerPartition=9 is above maxRecordsPerPartition=8",
        ),
        ({**SOURCE, "fetchOffset.numRetries": "0"}, "must be a whole number of at least 1"),
        ({**SOURCE, "fetchOffset.retryIntervalMs": "-1"}, "must be a whole number of at least 0"),
        ({**SOURCE, "kafkaConsumer.pollTimeoutMs": "0"}, "must be a whole number of at least 1"),
        ({**SOURCE, "startingOffsets": "latest"}, "would read nothing in a batch"),
        (
            {**SOURCE, "startingOffsets": "sometime"},
            r'must be earliest, latest or JSON like \{"topic":',
        ),
        ({**SOURCE, "startingOffsets": '{"a":{"0":-3}}'}, "must be earliest, latest or JSON"),
        ({**SOURCE, "startingOffsets": '{"a":{"0":true}}'}, "must be earliest, latest or JSON"),
        ({**SOURCE, "startingOffsets": "7"}, "must be earliest, latest or JSON"),
        ({**SOURCE, "endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({**SOURCE, "endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets cannot be earliest"),
        ({**SOURCE, "maxOffsetsPerTrigger": "0"}, "must be a whole number of at least 1"),
        ({**SOURCE, "minPartitions": "many"}, "must be a whole number of at least 1"),
        ({**SOURCE, "failOnDataLoss": "no"}, "must be true or false"),
        ({**SOURCE, "kafka.enable.auto.commit": "true"}, "Spark's checkpoint has them"),
        ({**SOURCE, "kafka.auto.offset.reset": "latest"}, "use the option startingOffsets"),
        ({**SOURCE, "kafka.sasl.jaas.config": "x"}, r"sasl\.jaas\.config: must be like"),
        (
            {**SOURCE, "kafka.sasl.jaas.config": JAAS, "kafka.sasl.username": "bob"},
            r"kafka\.sasl\.username and kafka\.sasl\.jaas\.config are both set",
        ),
        ({**SOURCE, "kafka.fetch.max.byte": "1"}, r"did you mean kafka\.fetch\.max\.bytes\?"),
        ({**SOURCE, "kafka.linger.ms": "1"}, r"kafka\.linger\.ms is not supported for reads"),
        (
            {**SOURCE, "kafka.request.timeout.ms": "soon"},
            r"^option kafka\.request\.timeout\.ms='soon': must be a number$",
        ),
        (
            {**SOURCE, "kafka.check.crcs": "maybe"},
            r"^option kafka\.check\.crcs='maybe': must be true or false$",
        ),
        (
            {**SOURCE, "kafka.isolation.level": "dirty"},
            r"^option kafka\.isolation\.level='dirty': must be read_uncommitted or read_committed$",
        ),
        (
            {**SOURCE, "kafka.default.api.timeout.ms": "0"},
            r"^option kafka\.default\.api\.timeout\.ms=0: must be at least 1$",
        ),
        (
            {**SOURCE, "kafka.bootstrap.servers": "h:"},
            r"^option kafka\.bootstrap\.servers='h:': must be host:port",
        ),
    ],
)
def test_a_wrong_option_of_a_read_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_source_options(options, streaming=False)


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(ConfigError, match=f"option {option} is for batch reads only"):
        source(True, **{option: "latest"})


def test_one_time_goes_before_times_per_partition_and_both_before_offsets() -> None:
    given = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    given |= {
        "startingOffsetsByTimestamp": '{"a":{"0":5}}',
        "endingOffsetsByTimestamp": '{"a":{"0":9}}',
    }
    options = source(**given)
    assert options.starting == TimestampSpec(
        "startingOffsetsByTimestamp", None, {TopicPartition("a", 0): 5}, latest_if_none=False
    )
    assert options.ending == TimestampSpec(
        "endingOffsetsByTimestamp", None, {TopicPartition("a", 0): 9}
    )
    options = source(
        **given,
        startingTimestamp="6",
        endingTimestamp="8",
        startingOffsetsByTimestampStrategy="Latest",
    )
    assert options.starting == TimestampSpec("startingTimestamp", 6, latest_if_none=True)
    assert options.ending == TimestampSpec("endingTimestamp", 8)


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2min", 120_000),
        ("1h", 3_600_000),
        ("7", 7),
    ],
)
def test_times_are_written_as_in_spark(text: str, delay_ms: int) -> None:
    assert source(True, minOffsetsPerTrigger="3", maxTriggerDelay=text).limits == TriggerLimits(
        None, 3, delay_ms
    )


def test_a_consumer_group_is_only_for_positions() -> None:
    options = source(True, kafka__group__id=" watched ")
    assert options.group == "watched"
    assert client_config(options.client) == {}


def test_what_has_no_effect_on_a_batch_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    source(maxOffsetsPerTrigger="5", kafka__group__id="g")
    assert [record.getMessage() for record in caplog.records] == [
        "option maxOffsetsPerTrigger has no effect on a batch read",
        "option kafka.group.id has no effect on a batch read",
    ]


def test_settings_of_java_without_effect_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spark_options, "_warned", set())
    common = {"kafka.bootstrap.servers": "h:1", "kafka.metric.reporters": "com.example.Reporter"}
    read = {**common, "subscribe": "t", "kafka.max.poll.records": "500"}
    read |= {"kafka.session.timeout.ms": "6000", "kafka.fetch.min.bytes": "7"}
    for _ in range(2):
        found = parse_source_options(read, streaming=True)
        assert found.client == {"bootstrap.servers": "h:1", "fetch.min.bytes": "7"}
    parse_sink_options({**common, "topic": "t"})
    assert sorted(caplog.messages) == [
        "option kafka.max.poll.records has no effect on reads",
        "option kafka.metric.reporters has no effect on reads",
        "option kafka.session.timeout.ms has no effect on reads",
    ]
    with pytest.raises(ConfigError, match=r"kafka\.max\.poll\.recods is not supported for reads"):
        parse_source_options({**read, "kafka.max.poll.recods": "1"}, streaming=True)


def test_client_settings_get_their_types() -> None:
    options = source(
        kafka__request__timeout__ms="5000",
        kafka__client__id="me",
        kafka__fetch__max__bytes="1e6",
        kafka__check__crcs="false",
    )
    assert client_config(options.client) == {"request_timeout_ms": 5000, "client_id": "me"}
    fetch = fetch_settings(options)
    assert (fetch.fetch_max_bytes, fetch.check_crcs) == (1_000_000, False)
    assert (fetch.max_partition_fetch_bytes, fetch.retry_limit_ms) == (4 * 1024 * 1024, 60_000)
    assert (
        fetch_settings(
            source(
                **{
                    "kafkaConsumer.pollTimeoutMs": "7000",
                    "kafka__default__api__timeout__ms": "5000",
                }
            )
        ).retry_limit_ms
        == 7000
    )


def test_a_read_is_reported_at_load_what_is_wrong_with_it_as_a_batch_and_as_a_stream() -> None:
    for wrong in (
        {"startingOffset": "latest"},
        {"kafka.bootstrap.servers": "h:"},
        {"assign": '{"t":[0]}'},
    ):
        with pytest.raises(ConfigError, match=r"startingOffset|bootstrap|exactly one"):
            KafkaDataSource({**SOURCE, **wrong}).schema()
    with pytest.raises(
        ConfigError,
        match=(
            r"^as a batch: option startingOffsets=latest would .*; as a stream: option "
            r"endingOffsets is for batch"
        ),
    ):
        KafkaDataSource({**SOURCE, "startingOffsets": "latest", "endingOffsets": "latest"}).schema()
    with pytest.raises(
        ConfigError, match=r"CREATE TABLE is not supported: .* use CREATE TEMPORARY VIEW"
    ):
        KafkaDataSource({**SOURCE, "provider": "aioprod"}).schema()
    for right in (
        {"startingOffsets": "latest"},
        {"endingOffsets": "latest"},
        {"includeHeaders": "true"},
    ):
        assert KafkaDataSource({**SOURCE, **right}).schema() == source_columns(
            include_headers="includeHeaders" in right
        )


@pytest.mark.parametrize("way", ["reader", "streamReader"])
def test_a_read_has_its_own_columns(way: str) -> None:
    source = KafkaDataSource({**SOURCE})
    with pytest.raises(
        ConfigError,
        match=(
            r"the columns of a read are fixed: omit \.schema\(\.\.\.\), and select from "
            r"struct<key:binary,"
        ),
    ):
        getattr(source, way)(StructType([StructField("value", StringType())]))
    assert getattr(source, way)(source.schema()) is not None


def test_sink_options_become_the_producers_arguments() -> None:
    given = {
        **SERVERS,
        "topic": "t",
        "checkpointLocation": "/x",
        "kafka.linger.ms": "20",
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
    }
    options = parse_sink_options(
        given | {"kafka.compression.type": "zstd", "kafka.compression.level": "5"}
    )
    assert options.topic == "t"
    assert options.producer == {
        "bootstrap_servers": "localhost:9092",
        "linger_ms": 20,
        "acks": "all",
        "enable_idempotence": True,
        "compression_type": "zstd",
        "compression_level": 5,
        "batch_size": 131_072,
        "transaction_timeout_ms": 900_000,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t"}, r"kafka\.bootstrap\.servers is required"),
        ({**SERVERS, "topic": " "}, "option topic is empty"),
        ({**SERVERS, "subscribe": "t"}, "option subscribe is for reads only, this is a write"),
        ({**SERVERS, "topics": "t"}, r"unknown option topics; did you mean topic\?"),
        (
            {**SERVERS, "kafka.linger": "5"},
            r"^option kafka\.linger is not supported for writes; did you mean kafka\.linger\.ms\?$",
        ),
        ({**SERVERS, "kafka.linger.ms": "x"}, r"^option kafka\.linger\.ms='x': must be a number$"),
        ({**SERVERS, "kafka.batch.size": "-5"}, r"^option kafka\.batch\.size=-5: must be from 0"),
        (
            {**SERVERS, "kafka.acks": "1", "delivery": "at-least-once"},
            r"^option kafka\.acks=1: .* or kafka\.enable\.idempotence=False$",
        ),
        (
            {"kafka.bootstrap.servers": "h:"},
            r"^option kafka\.bootstrap\.servers='h:': must be host:port",
        ),
        ({**SERVERS, "kafka.transactional.id": "x"}, "transactionalIdPrefix"),
        ({**SERVERS, "kafka.value.serializer": "x"}, "make the column value string or binary"),
    ],
)
def test_a_wrong_option_of_a_write_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_sink_options(options)


def test_security_settings_reach_the_client_and_passwords_no_repr() -> None:
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "hunter2",
    }
    given = {f"kafka.{name}": text for name, text in security.items()}
    source = parse_source_options({**SOURCE, **given}, streaming=False)
    sink = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **given})
    expected = {name.replace(".", "_"): text for name, text in security.items()}
    assert client_config(source.client).items() >= expected.items()
    assert sink.producer.items() >= expected.items()
    assert "hunter2" not in repr(source) + repr(sink)
