"""The options of the data source: Spark's own names, ``kafka.*`` passed on, and an error for everything nobody knows."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from aioprod.config import ClientConfig, check_names
from aioprod.consumer.partition_reader import FetchSettings
from aioprod.errors import ConfigError
from aioprod.producer_config import ProducerConfig
from aioprod.spark.offsets import EARLIEST, LATEST, OffsetSpec, parse_assignment, parse_offsets
from aioprod.types import TopicPartition

BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"
CLIENT_PREFIX = "kafka."

_SOURCE_NAMES = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
)
_SINK_NAMES = ("topic", "includeHeaders")
# Spark adds these to the options by itself.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path", "paths", "table"})
# Known to Spark's own connector, and refused rather than ignored: to ignore them would read other rows than asked for.
_NOT_SUPPORTED = (
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxRecordsPerPartition",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
_FETCH_NAMES = {
    "default.api.timeout.ms": "retry_limit_ms",
    "fetch.max.bytes": "fetch_max_bytes",
    "fetch.max.wait.ms": "fetch_max_wait_ms",
    "fetch.min.bytes": "fetch_min_bytes",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "isolation.level": "isolation_level",
    "check.crcs": "check_crcs",
}
# A task reads one partition, so that the whole reply is one partition's; Kafka's 1 MiB would cost a round trip per 10,000 small records.
_PARTITION_FETCH_BYTES = 4 * 1024 * 1024
_SOURCE_CLIENT_NAMES = (*(item.name.replace("_", ".") for item in fields(ClientConfig)), *_FETCH_NAMES)
# A task has all its rows at hand: larger batches fill at once. Kafka's 16 KiB is for records that come one by one.
_PRODUCER_DEFAULTS = {"batch_size": 128 * 1024}
# Settings whose default is None, so that it does not tell their type.
_WHOLE_NUMBERS = frozenset({"compression_level"})
_SET_BY_SPARK = {
    "group.id": "the source uses no consumer group: Spark's checkpoint holds the offsets",
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "the source commits no offsets: Spark's checkpoint holds them",
    "key.deserializer": "keys arrive as binary; cast or decode the column",
    "value.deserializer": "values arrive as binary; cast or decode the column",
    "key.serializer": "make the column key string or binary",
    "value.serializer": "make the column value string or binary",
    "interceptor.classes": "Java interceptors cannot run in Python",
    "transactional.id": "the sink is idempotent per task but not transactional",
}


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """What to read: exactly one of the three is given.

    Attributes:
        topics: option ``subscribe``: names, separated by commas.
        partitions: option ``assign``: ``{"topic": [0, 1]}``.
        pattern: option ``subscribePattern``: a regular expression that a whole topic name must match.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str | None = None

    def describe(self) -> str:
        """The selection as the user wrote it, for messages."""
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        if self.partitions:
            return "assign=" + ",".join(f"{p.topic}-{p.partition}" for p in self.partitions)
        return "subscribe=" + ",".join(self.topics)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options of a batch or stream read.

    Attributes:
        bootstrap_servers: ``host:port``, separated by commas.
        selection: topics or partitions to read.
        starting: where to begin; default earliest (batch) or latest (stream).
        ending: where a batch read stops (exclusive); default latest.
        max_offsets_per_trigger: most offsets in one micro-batch, over all partitions.
        min_partitions: least number of Spark tasks; partitions are split to reach it.
        fail_on_data_loss: whether offsets that are gone fail the query (default) or are skipped with a warning.
        include_headers: adds the column ``headers``.
        client: the ``kafka.*`` settings without the prefix.
    """

    bootstrap_servers: str
    selection: TopicSelection
    starting: OffsetSpec
    ending: OffsetSpec
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold passwords


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a write.

    Attributes:
        topic: the topic of all rows; without it each row names its own in the column ``topic``.
        producer: keyword arguments of `aioprod.Producer`.
    """

    topic: str | None
    producer: Mapping[str, Any] = field(repr=False)  # it may hold passwords


def parse_source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check the options of a read.

    Raises:
        ConfigError: an option is missing, unknown, not supported or malformed; the text says which and what to write instead.
    """
    given = _lower_keys(options)
    client = _client_settings(given, _SOURCE_CLIENT_NAMES)
    _check_names(given, _SOURCE_NAMES, kind="read", other=_SINK_NAMES, other_kind="write")
    starting = parse_offsets("startingOffsets", given.get("startingoffsets"), default=LATEST if streaming else EARLIEST)
    ending = parse_offsets("endingOffsets", given.get("endingoffsets"), default=LATEST)
    if streaming and "endingoffsets" in given:
        raise ConfigError("option endingOffsets is for batch reads only; a stream has no end")
    if not streaming and starting.default == LATEST:
        raise ConfigError("option startingOffsets=latest would read nothing in a batch; use earliest or offsets per partition")
    if ending.default == EARLIEST or EARLIEST in ending.explicit.values():
        raise ConfigError("option endingOffsets cannot be earliest (-2); use latest or offsets per partition")
    return SourceOptions(
        bootstrap_servers=client["bootstrap.servers"],
        selection=_selection(given),
        starting=starting,
        ending=ending,
        max_offsets_per_trigger=_positive(given, "maxOffsetsPerTrigger"),
        min_partitions=_positive(given, "minPartitions"),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        include_headers=_boolean(given, "includeHeaders", default=False),
        client=client,
    )


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write. Limits of the producer's settings are checked when it is made.

    Raises:
        ConfigError: an option is missing, unknown or not supported.
    """
    given = _lower_keys(options)
    client = _client_settings(given, None)
    _check_names(given, _SINK_NAMES, kind="write", other=_SOURCE_NAMES, other_kind="read")
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("option topic is empty")
    settings = typed_settings(ProducerConfig, client)
    check_names(ProducerConfig, settings)
    return SinkOptions(topic=topic, producer=_PRODUCER_DEFAULTS | settings)


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether the column ``headers`` belongs to the schema of a read."""
    return _boolean(_lower_keys(options), "includeHeaders", default=False)


def _lower_keys(options: Mapping[str, str]) -> dict[str, str]:
    # Spark's option names don't mind their case; Python data sources get them lowered.
    return {name.lower(): value for name, value in options.items()}


def _client_settings(given: Mapping[str, str], allowed: Collection[str] | None) -> dict[str, str]:
    client = {name.removeprefix(CLIENT_PREFIX): value for name, value in given.items() if name.startswith(CLIENT_PREFIX)}
    for name in client:
        if name in _SET_BY_SPARK:
            raise ConfigError(f"option {CLIENT_PREFIX}{name} is not supported: {_SET_BY_SPARK[name]}")
        if allowed is not None and name not in allowed:
            raise ConfigError(f"option {CLIENT_PREFIX}{name} is not supported for reads{_hint(name, allowed, CLIENT_PREFIX)}")
    if not client.get("bootstrap.servers", "").strip():
        raise ConfigError(f'option {BOOTSTRAP_SERVERS} is required, for example "localhost:9092"')
    return client


def _check_names(given: Mapping[str, str], names: Collection[str], *, kind: str, other: Collection[str], other_kind: str) -> None:
    known = {name.lower() for name in names} | _SPARKS_OWN
    for name in given:
        if name in known or name.startswith(CLIENT_PREFIX):
            continue
        for foreign in other:
            if name == foreign.lower():
                raise ConfigError(f"option {foreign} is for {other_kind}s only, this is a {kind}")
        for refused in _NOT_SUPPORTED:
            if name == refused.lower():
                raise ConfigError(f"option {refused} of Spark's Kafka connector is not supported by aioprod")
        raise ConfigError(f"unknown option {name}{_hint(name, (*names, BOOTSTRAP_SERVERS))}")


def _hint(name: str, candidates: Collection[str], prefix: str = "") -> str:
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.6)
    return f"; did you mean {prefix}{by_lower[near[0]]}?" if near else ""


def _selection(given: Mapping[str, str]) -> TopicSelection:
    chosen = [name for name in ("subscribe", "assign", "subscribePattern") if name.lower() in given]
    if len(chosen) != 1:
        raise ConfigError(f"exactly one of the options subscribe, assign, subscribePattern is required, got {', '.join(chosen) or 'none'}")
    if chosen == ["subscribe"]:
        topics = tuple(dict.fromkeys(topic.strip() for topic in given["subscribe"].split(",") if topic.strip()))
        if not topics:
            raise ConfigError("option subscribe names no topic")
        return TopicSelection(topics=topics)
    if chosen == ["assign"]:
        return TopicSelection(partitions=parse_assignment(given["assign"]))
    pattern = given["subscribepattern"].strip()
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"option subscribePattern={pattern!r} is not a regular expression: {error}") from error
    return TopicSelection(pattern=pattern)


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option {name} must be true or false, got {text!r}")
    return text.lower() == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"option {name} must be a whole number of at least 1, got {json.dumps(text)}")
    return number


def client_config(client: Mapping[str, str]) -> dict[str, Any]:
    """The ``kafka.*`` settings of a read that are the client's, as keyword arguments of `aioprod.cluster.client.ClusterClient`.

    Raises:
        ConfigError: a value that is not of its type.
    """
    given = {name: text for name, text in client.items() if name not in _FETCH_NAMES and name != "bootstrap.servers"}
    return typed_settings(ClientConfig, given)


def fetch_settings(client: Mapping[str, str]) -> FetchSettings:
    """The ``kafka.*`` settings of a read that tell how to fetch.

    Raises:
        ConfigError: a value that is not of its type or outside its limits.
    """
    renamed = {_FETCH_NAMES[name]: text for name, text in client.items() if name in _FETCH_NAMES}
    settings = typed_settings(FetchSettings, renamed)
    settings.setdefault("max_partition_fetch_bytes", _PARTITION_FETCH_BYTES)
    return FetchSettings(**settings)


def typed_settings(kind: type[Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Spark's options are text: give each setting of a dataclass the type of its default. Names may have dots.

    Raises:
        ConfigError: the text is not of that type. Names the class doesn't have are passed on as they are.
    """
    defaults = {item.name: item.default for item in fields(kind)}
    typed: dict[str, Any] = {}
    for dotted, text in given.items():
        name = dotted.replace(".", "_")
        try:
            typed[name] = _typed(text, defaults.get(name), name)
        except ValueError:
            raise ConfigError(f"option {CLIENT_PREFIX}{dotted}={text!r}: must be {_kind_of(defaults.get(name))}") from None
    return typed


def _typed(text: str, default: object, name: str) -> object:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if isinstance(default, int) or name in _WHOLE_NUMBERS:
        number = float(text)
        return int(number) if number.is_integer() else number
    return text


def _kind_of(default: object) -> str:
    return "true or false" if isinstance(default, bool) else "a number"
