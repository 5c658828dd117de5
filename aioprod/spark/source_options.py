"""The options of reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioprod.config.client import ClientConfig
from aioprod.config.redaction import hide_arguments
from aioprod.consumer.partition_reader import FetchSettings
from aioprod.errors import ConfigError
from aioprod.logs import get_logger
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

log = get_logger(__name__)

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
# A task reads one partition, so the whole reply is that partition's; with Kafka's 1 MiB each
# 10,000 small records would cost a round trip.
_PARTITION_FETCH_BYTES = 4 * 1024 * 1024
_NAMES = dotted_names(ClientConfig)
_CLIENT_NAMES = ("group.id", *sorted(set(_NAMES.values()) - SET_BY_SPARK.keys()), *_FETCH_NAMES)


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """What to read: exactly one of the three is set.

    Attributes:
        topics: option ``subscribe``: names, separated by commas.
        partitions: option ``assign``: ``{"topic": [0, 1]}``.
        pattern: option ``subscribePattern``: a regular expression that a whole topic name must
            match.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str | None = None

    def describe(self) -> str:
        """Return the selection as the user wrote it, for messages."""
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
        limits: how much a micro-batch takes.
        min_partitions: minimum number of Spark tasks; partitions are split to reach it.
        max_records_per_partition: maximum number of offsets in a Spark task.
        fail_on_data_loss: whether lost offsets fail the query (default) or are skipped with a
            warning.
        include_headers: adds the column ``headers``.
        fetch_offset_retries, fetch_offset_retry_interval_ms: how often, and after which pause, to
            request ends again that went backwards.
        poll_timeout_ms: maximum time without progress in a task (``kafkaConsumer.pollTimeoutMs``);
            None: ``kafka.default.api.timeout.ms``.
        typed: how JSON values are decoded (``value.format``), if they are.
        registry: where the schema of values is, if they have one.
        registered: that schema, when it has been asked for.
        group: the consumer group to commit positions to (``kafka.group.id``), to monitor its lag;
            None: positions are not committed.
        client: the other ``kafka.*`` settings without the prefix.
    """

    bootstrap_servers: str
    selection: TopicSelection
    starting: OffsetSpec | TimestampSpec
    ending: OffsetSpec | TimestampSpec
    limits: TriggerLimits = field(default_factory=TriggerLimits)
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1000
    poll_timeout_ms: int | None = None
    typed: TypedOptions | None = None
    registry: RegistryOptions | None = None
    registered: RegisteredValue | None = None
    group: str | None = None
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may have passwords


@hide_arguments
def parse_source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check the options of a read.

    Raises:
        ConfigError: if an option is missing, unknown, unsupported or malformed; the text names it
            and what to write instead.
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
        fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
        include_headers=boolean(given, "includeHeaders", default=False),
        fetch_offset_retries=positive(given, "fetchOffset.numRetries") or 3,
        fetch_offset_retry_interval_ms=1000
        if (interval := whole(given, "fetchOffset.retryIntervalMs")) is None
        else interval,
        poll_timeout_ms=positive(given, "kafkaConsumer.pollTimeoutMs"),
        typed=parse_typed_options(given),
        registry=registry_values(given),
        group=client.pop("group.id", "").strip() or None,
        client=client,
    )
    _check_client(checked)
    return checked


@hide_arguments
def check_read_options(options: Mapping[str, str]) -> None:
    """Check options before it is known whether a batch or a stream is read.

    Raises:
        ConfigError: if they are wrong for both.
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
    """Check the client's settings here, before brokers are asked."""
    with named_as_options({**_NAMES, **{name: dotted for dotted, name in _FETCH_NAMES.items()}}):
        ClientConfig(
            **{"bootstrap_servers": options.bootstrap_servers, **client_config(options.client)}
        )
        fetch_settings(options)


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
    """Return how a read decodes values; None if they stay binary."""
    return parse_typed_options(lower_keys(options))


@hide_arguments
def registry_values(options: Mapping[str, str]) -> RegistryOptions | None:
    """Return where the schema of values is; None if they have none."""
    given = lower_keys(options)
    selection = _selection(given)
    topics = {*selection.topics, *(each.topic for each in selection.partitions)}
    return parse_registry_options(given, topics.pop() if len(topics) == 1 else None)


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
    """Return the client's ``kafka.*`` settings of a read, as keyword arguments of
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
