"""The options of reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aioprod.config.client import ClientConfig
from aioprod.config.redaction import hide_arguments
from aioprod.consumer.partition_reader import FetchSettings
from aioprod.errors import ConfigError
from aioprod.logs import Logger, get_logger
from aioprod.spark.admission import TriggerLimits
from aioprod.spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetSpec,
    TimestampSpec,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)
from aioprod.spark.options import (
    CLIENT_PREFIX,
    DEAD_LETTER_TOPIC,
    DEFAULT_PREFIX,
    SET_BY_SPARK,
    SINK_NAMES,
    SOURCE_NAMES,
    boolean,
    check_option_names,
    client_settings,
    dotted_names,
    lower_keys,
    milliseconds,
    named_as_options,
    positive,
    typed_settings,
    whole,
)
from aioprod.spark.registered.options import RegistryOptions, parse_registry_options
from aioprod.spark.typed.options import TypedOptions, parse_typed_options
from aioprod.types import TopicPartition

if TYPE_CHECKING:
    from aioprod.spark.registered.schemas import RegisteredValue

log: Logger = get_logger(__name__)

_FETCH_NAMES = {
    "default.api.timeout.ms": "retry_limit_ms",
    "fetch.max.bytes": "fetch_max_bytes",
    "fetch.max.wait.ms": "fetch_max_wait_ms",
    "fetch.min.bytes": "fetch_min_bytes",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "isolation.level": "isolation_level",
    "check.crcs": "check_crcs",
    "client.rack": "client_rack",
}
# A task reads one partition, so the whole response belongs to it. With Kafka's 1 MiB, each 10,000
# small records would cost a round trip.
_PARTITION_FETCH_BYTES = 4 * 1024 * 1024
_NAMES = dotted_names(ClientConfig)
_CLIENT_NAMES = ("group.id", *sorted(set(_NAMES.values()) - SET_BY_SPARK.keys()), *_FETCH_NAMES)


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics or partitions to read: exactly one of the three attributes is set.

    Attributes:
        topics: the option ``subscribe``: names, separated by commas.
        partitions: the option ``assign``: ``{"topic": [0, 1]}``.
        pattern: the option ``subscribePattern``: a regular expression that a whole topic name must
            match.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str | None = None

    def describe(self) -> str:
        """Return the selection in the user's form, for messages."""
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        if self.partitions:
            return "assign=" + ",".join(f"{p.topic}-{p.partition}" for p in self.partitions)
        return "subscribe=" + ",".join(self.topics)


@dataclass(frozen=True, slots=True)
class DeadLetterOptions:
    """The destination of records whose values can't be decoded.

    Attributes:
        topic: the option ``deadLetterTopic``.
        prefix: the option ``transactionalIdPrefix``, for the transactional ids and the group.
    """

    topic: str
    prefix: str = DEFAULT_PREFIX


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The validated options of a batch or stream read.

    Attributes:
        bootstrap_servers: ``host:port``, separated by commas.
        selection: the topics or partitions to read.
        starting: the start; by default earliest (batch) or latest (stream).
        ending: the end of a batch read (exclusive); by default latest.
        limits: the limits on the size of a micro-batch.
        min_partitions: the minimum number of Spark tasks; partitions are split to reach it.
        max_records_per_partition: the maximum number of offsets in a Spark task.
        min_records_per_partition: partitions with fewer offsets share a Spark task, until it has
            this many; None if each has its own.
        fail_on_data_loss: True if lost offsets fail the query (the default), False if they are
            skipped with a warning.
        include_headers: add the column ``headers``.
        fetch_offset_retries, fetch_offset_retry_interval_ms: the number of retries if end offsets
            have decreased, and the pause before each.
        poll_timeout_ms: the maximum time without progress in a task
            (``kafkaConsumer.pollTimeoutMs``); None for ``kafka.default.api.timeout.ms``.
        typed: the decoding of JSON values (``value.format``), if any.
        registry: the location of the schema of values, if they have one.
        registered: that schema, once it has been requested.
        dead_letters: the destination of records whose values can't be decoded; None to use
            ``mode``.
        group: the consumer group to commit positions to (``kafka.group.id``), to monitor its lag;
            None to commit no positions.
        client: the other ``kafka.*`` settings without the prefix.
    """

    bootstrap_servers: str
    selection: TopicSelection
    starting: OffsetSpec | TimestampSpec
    ending: OffsetSpec | TimestampSpec
    limits: TriggerLimits = field(default_factory=TriggerLimits)
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    min_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1000
    poll_timeout_ms: int | None = None
    typed: TypedOptions | None = None
    registry: RegistryOptions | None = None
    registered: RegisteredValue | None = None
    dead_letters: DeadLetterOptions | None = None
    group: str | None = None
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may have passwords


@hide_arguments
def parse_source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Validate the options of a read.

    Raises:
        ConfigError: if an option is missing, unknown, unsupported or malformed; the message names
            it and what to use instead.
    """
    given = lower_keys(options)
    client = client_settings(given, _CLIENT_NAMES, "read")
    check_option_names(given, SOURCE_NAMES, kind="read", other=SINK_NAMES, other_kind="write")
    if streaming:
        _refuse_ends(given)
    else:
        _warn_of_stream_options(given)
    checked = SourceOptions(
        bootstrap_servers=client["bootstrap.servers"],
        selection=_selection(given),
        starting=_starting(given, streaming),
        ending=_ending(given),
        limits=_limits(given),
        min_partitions=positive(given, "minPartitions"),
        max_records_per_partition=positive(given, "maxRecordsPerPartition"),
        min_records_per_partition=_min_records(given),
        fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
        include_headers=boolean(given, "includeHeaders", default=False),
        fetch_offset_retries=positive(given, "fetchOffset.numRetries") or 3,
        fetch_offset_retry_interval_ms=1000
        if (interval := whole(given, "fetchOffset.retryIntervalMs")) is None
        else interval,
        poll_timeout_ms=positive(given, "kafkaConsumer.pollTimeoutMs"),
        typed=typed_values(given),
        registry=registry_values(given),
        dead_letters=_dead_letters(given, streaming),
        group=client.pop("group.id", "").strip() or None,
        client=client,
    )
    _check_client(checked)
    return checked


@hide_arguments
def check_read_options(options: Mapping[str, str]) -> None:
    """Validate options before it is known whether a batch or a stream is read.

    Raises:
        ConfigError: if they are invalid for both.
    """
    try:
        parse_source_options(options, streaming=True)
    except ConfigError as of_stream:
        try:
            parse_source_options(options, streaming=False)
        except ConfigError as of_batch:
            if str(of_batch) == str(of_stream):
                raise of_batch from None
            raise ConfigError(f"as a batch: {of_batch}; as a stream: {of_stream}") from None


def _check_client(options: SourceOptions) -> None:
    """Validate the client's settings before any request to brokers."""
    with named_as_options({**_NAMES, **{name: dotted for dotted, name in _FETCH_NAMES.items()}}):
        ClientConfig(
            **{"bootstrap_servers": options.bootstrap_servers, **client_config(options.client)}
        )
        fetch_settings(options)


def _min_records(given: Mapping[str, str]) -> int | None:
    name, maximum = "minRecordsPerPartition", "maxRecordsPerPartition"
    found, most = positive(given, name), positive(given, maximum)
    if found is not None and "minpartitions" in given:
        raise ConfigError(
            f"options {name} and minPartitions can't be combined: one makes fewer tasks, the other "
            "more"
        )
    if found is not None and most is not None and found > most:
        raise ConfigError(f"option {name}={found} is above {maximum}={most}")
    return found


def _dead_letters(given: Mapping[str, str], streaming: bool) -> DeadLetterOptions | None:
    name, prefix = DEAD_LETTER_TOPIC, given.get("transactionalidprefix")
    topic = given.get(name.lower(), "").strip()
    if name.lower() not in given:
        if prefix is not None:
            raise ConfigError(f"option transactionalIdPrefix of a read needs {name}")
        return None
    if not topic:
        raise ConfigError(f"option {name} is empty")
    if not streaming:
        raise ConfigError(
            f"option {name} is for streams: a batch may be read several times. Set mode=permissive "
            "and includeRawValue=true, and write the rows that are not decoded"
        )
    if "value.format" not in given:
        raise ConfigError(f"option {name} needs value.format: binary values are not decoded")
    if "mode" in given:
        raise ConfigError(f"option {name} sets how malformed values are handled: leave mode out")
    for other in ("minPartitions", "maxRecordsPerPartition"):
        if other.lower() in given:
            raise ConfigError(
                f"options {name} and {other} can't be combined: dead letters are written once if "
                "one task reads a partition"
            )
    selection = _selection(given)
    read = {*selection.topics, *(each.topic for each in selection.partitions)}
    if topic in read or (selection.pattern and re.fullmatch(selection.pattern, topic)):
        raise ConfigError(f"option {name}={topic}: the query reads this topic; choose another")
    return DeadLetterOptions(topic, prefix or DEFAULT_PREFIX)


def _refuse_ends(given: Mapping[str, str]) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in given:
            raise ConfigError(f"option {name} is for batch reads only; a stream has no end")


def _warn_of_stream_options(given: Mapping[str, str]) -> None:
    for name in (
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        CLIENT_PREFIX + "group.id",
    ):
        if name.lower() in given:
            log.warning("option %s has no effect on a batch read", name)


def _starting(given: Mapping[str, str], streaming: bool) -> OffsetSpec | TimestampSpec:
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(
            f"option startingOffsetsByTimestampStrategy must be error or latest, got {strategy!r}"
        )
    by_time = _by_time(given, "starting", latest_if_none=strategy == "latest")
    if by_time is not None:
        return by_time
    starting = parse_offsets(
        "startingOffsets", given.get("startingoffsets"), default=LATEST if streaming else EARLIEST
    )
    if not streaming and starting.default == LATEST:
        raise ConfigError(
            "option startingOffsets=latest would read nothing in a batch; use earliest or "
            "offsets per partition"
        )
    return starting


def _ending(given: Mapping[str, str]) -> OffsetSpec | TimestampSpec:
    by_time = _by_time(given, "ending", latest_if_none=True)
    if by_time is not None:
        return by_time
    ending = parse_offsets("endingOffsets", given.get("endingoffsets"), default=LATEST)
    if ending.default == EARLIEST or EARLIEST in ending.explicit.values():
        raise ConfigError(
            "option endingOffsets cannot be earliest (-2); use latest or offsets per partition"
        )
    return ending


def _by_time(given: Mapping[str, str], which: str, *, latest_if_none: bool) -> TimestampSpec | None:
    """Apply Spark's precedence: one timestamp for all, timestamps per partition, offsets."""
    option = f"{which}Timestamp"
    if (timestamp := whole(given, option)) is not None:
        return TimestampSpec(option, timestamp, latest_if_none=latest_if_none)
    option = f"{which}OffsetsByTimestamp"
    if (text := given.get(option.lower())) is not None:
        return TimestampSpec(option, None, parse_timestamps(option, text), latest_if_none)
    return None


def _limits(given: Mapping[str, str]) -> TriggerLimits:
    least, most = positive(given, "minOffsetsPerTrigger"), positive(given, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"option minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}"
        )
    return TriggerLimits(
        most, least, milliseconds(given, "maxTriggerDelay", default=TriggerLimits().max_delay_ms)
    )


def wants_headers(options: Mapping[str, str]) -> bool:
    """Return whether a read has the column ``headers``."""
    return boolean(lower_keys(options), "includeHeaders", default=False)


def typed_values(options: Mapping[str, str]) -> TypedOptions | None:
    """Return the decoding of values in a read; None if they stay binary."""
    given = lower_keys(options)
    typed = parse_typed_options(given)
    if typed is None or DEAD_LETTER_TOPIC.lower() not in given:
        return typed
    return replace(typed, mode="dropmalformed")


@hide_arguments
def registry_values(options: Mapping[str, str]) -> RegistryOptions | None:
    """Return the location of the schema of values; None if they have none."""
    given = lower_keys(options)
    selection = _selection(given)
    topics = {*selection.topics, *(each.topic for each in selection.partitions)}
    found = parse_registry_options(given, topics.pop() if len(topics) == 1 else None)
    if found is None or DEAD_LETTER_TOPIC.lower() not in given:
        return found
    return replace(found, mode="dropmalformed")


def _selection(given: Mapping[str, str]) -> TopicSelection:
    chosen = [name for name in ("subscribe", "assign", "subscribePattern") if name.lower() in given]
    if len(chosen) != 1:
        raise ConfigError(
            "exactly one of the options subscribe, assign, subscribePattern is required, "
            f"got {', '.join(chosen) or 'none'}"
        )
    if chosen == ["subscribe"]:
        topics = tuple(
            dict.fromkeys(topic.strip() for topic in given["subscribe"].split(",") if topic.strip())
        )
        if not topics:
            raise ConfigError("option subscribe names no topic")
        return TopicSelection(topics=topics)
    if chosen == ["assign"]:
        return TopicSelection(partitions=parse_assignment(given["assign"]))
    pattern = given["subscribepattern"].strip()
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"option subscribePattern={pattern!r} is not a regular expression: {error}"
        ) from error
    return TopicSelection(pattern=pattern)


@hide_arguments
def client_config(client: Mapping[str, str]) -> dict[str, Any]:
    """Return a read's ``kafka.*`` settings for the client, as keyword arguments of
    `aioprod.cluster.client.ClusterClient`.

    Raises:
        ConfigError: if a value does not have the setting's type.
    """
    given = {
        name: text
        for name, text in client.items()
        if name not in _FETCH_NAMES and name != "bootstrap.servers"
    }
    return typed_settings(ClientConfig, given)


def fetch_settings(options: SourceOptions) -> FetchSettings:
    """Return the settings of a read for fetching.

    Raises:
        ConfigError: if a value has the wrong type or is out of range.
    """
    renamed = {
        _FETCH_NAMES[name]: text for name, text in options.client.items() if name in _FETCH_NAMES
    }
    settings = typed_settings(FetchSettings, renamed)
    if options.poll_timeout_ms is not None:
        settings["retry_limit_ms"] = options.poll_timeout_ms
    settings.setdefault("max_partition_fetch_bytes", _PARTITION_FETCH_BYTES)
    return FetchSettings(**settings)
