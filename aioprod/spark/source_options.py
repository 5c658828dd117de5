"""The options of reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from aioprod.config import ClientConfig
from aioprod.consumer.partition_reader import FetchSettings
from aioprod.errors import ConfigError
from aioprod.spark.offsets import EARLIEST, LATEST, OffsetSpec, parse_assignment, parse_offsets
from aioprod.spark.options import SINK_NAMES, SOURCE_NAMES, boolean, check_option_names, client_settings, lower_keys, positive, typed_settings
from aioprod.types import TopicPartition

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


def parse_source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check the options of a read.

    Raises:
        ConfigError: an option is missing, unknown, not supported or malformed; the text says which and what to write instead.
    """
    given = lower_keys(options)
    client = client_settings(given, _SOURCE_CLIENT_NAMES)
    check_option_names(given, SOURCE_NAMES, kind="read", other=SINK_NAMES, other_kind="write")
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
        max_offsets_per_trigger=positive(given, "maxOffsetsPerTrigger"),
        min_partitions=positive(given, "minPartitions"),
        fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
        include_headers=boolean(given, "includeHeaders", default=False),
        client=client,
    )


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether the column ``headers`` belongs to the schema of a read."""
    return boolean(lower_keys(options), "includeHeaders", default=False)


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
