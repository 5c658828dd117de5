"""The declarations of a producer's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aioprod.codecs import CODECS, Codec, Levels
from aioprod.config.checks import (
    MAX_INT,
    check_name,
    check_serializer,
    in_range,
    list_of,
    one_of,
    or_none,
)
from aioprod.config.compression import check_topic_compression
from aioprod.config.setting import (
    MAX_LONG,
    Section,
    Setting,
    Source,
    literal,
    milliseconds,
    number,
    section,
    switch,
)
from aioprod.config.settings.client import CONNECTIONS, METRICS
from aioprod.config.settings.security import SECURITY
from aioprod.errors import ConfigError
from aioprod.foreign_text import shown
from aioprod.interceptors import ProducerInterceptor
from aioprod.metrics import ProducerObserver

_CODEC = literal(*CODECS)
_TOPIC_COMPRESSION = f"Mapping[str, {_CODEC} | tuple[{_CODEC}, int]]"


def _check_acks(name: str, value: Any) -> int:
    acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(str(value))
    if acks is None or isinstance(value, bool):
        raise ConfigError(f"{name}={value!r}: must be 'all', -1, 0 or 1")
    return acks


def _check_codec(name: str, value: Any) -> Any:
    return one_of(tuple(CODECS))(name, "none" if value is None else value)


def _check_partitioner(name: str, value: Any) -> Any:
    if value is not None and (
        isinstance(value, type) or not callable(getattr(value, "partition", None))
    ):
        raise ConfigError(
            f"{name}={shown(value)}: must be an object with a method "
            "partition(topic, key, value, partitions)"
        )
    return value


def _level(codec: Codec, levels: Levels) -> Setting:
    def check(name: str, level: Any) -> Any:
        codec.check_level(name, level)
        return level

    return Setting(
        f"compression_{codec.label}_level",
        "int",
        levels.default,
        f"Compression level of {codec.label}. {levels.note}".rstrip(),
        check,
        levels.words,
        since="3.8, KIP-390",
    )


SENDING = section(
    Setting(
        "acks",
        literal("all", -1, 0, 1),
        "all",
        "Acknowledgments that a record needs: `all` in-sync replicas, the leader (`1`), or none "
        "(`0`: offsets are unknown, and lost records are not noticed).",
        _check_acks,
        "`all`, -1, 0 or 1",
    ),
    switch(
        "enable_idempotence",
        True,
        "Whether each record is written once and in order, even if requests are retried. Requires "
        "`acks=all`, `retries` above 0, and at most 5 requests in flight; otherwise an error, "
        "where Java may disable it.",
        since="0.11, KIP-98",
    ),
    number(
        "retries",
        MAX_INT,
        0,
        "Number of times that a batch is sent again. Prefer to limit retries by "
        "`delivery_timeout_ms`.",
    ),
    milliseconds(
        "delivery_timeout_ms",
        120_000,
        1,
        "Longest time from `send` to the outcome of a record. At least `linger_ms` + "
        "`request_timeout_ms`.",
        since="2.1, KIP-91",
    ),
    milliseconds(
        "max_block_ms",
        60_000,
        0,
        "Longest time that `send` waits for metadata and buffer memory, and longest time of each "
        "call of a transaction.",
    ),
    number(
        "max_in_flight_requests_per_connection",
        5,
        1,
        "Number of requests to a broker that may wait for a response. Without idempotence, a "
        "retry may change the order of records if this is above 1. With idempotence, the default "
        "is 32 for a broker that takes 50 ms or more.",
    ),
    number(
        "max_request_size",
        1_048_576,
        1,
        "Size limit of a request, and of a record before compression.",
        unit="bytes",
    ),
)

BATCHES = section(
    milliseconds(
        "linger_ms",
        5,
        0,
        "Time that a batch waits for more records before it is sent; may have a fraction. A full "
        "batch does not wait.",
        type="float",
    ),
    number(
        "batch_size",
        16_384,
        0,
        "Size of a batch of records for a partition. A larger record gets its own batch.",
        unit="bytes",
    ),
    Setting(
        "largest_batch_size",
        "int | None",
        None,
        "Size to which a batch grows past `batch_size` while "
        "`max_in_flight_requests_per_connection` requests to the broker wait for a response. "
        "With the default `linger_ms`, batches grow and linger if a broker takes 50 ms or more. "
        "None: `max_request_size`, or `batch_size` if that is set.",
        or_none(in_range(0, MAX_INT)),
        "0 to 2147483647, or None",
        "bytes",
        kafka_name=None,
    ),
    number(
        "buffer_memory",
        33_554_432,
        1,
        "Memory for records that are not acknowledged. `send` waits if it is used up. At least "
        "`batch_size`.",
        high=MAX_LONG,
        unit="bytes",
    ),
    Setting(
        "compression_type",
        f"{_CODEC} | None",
        "none",
        "Compression codec of batches.",
        _check_codec,
        ", ".join(f"`{each}`" for each in CODECS),
    ),
    Setting(
        "compression_level",
        "int | None",
        None,
        "Compression level of the codec in `compression_type`. Do not set the level of the codec "
        "itself to another value.",
        values="a level of the codec",
        kafka_name=None,
    ),
    *(_level(codec, codec.levels) for codec in Codec if codec.levels),
    Setting(
        "topic_compression",
        _TOPIC_COMPRESSION,
        {},
        "Codec, or (codec, level), for single topics, such as "
        '`{"logs": ("zstd", 9), "clicks": "lz4"}`.',
        check_topic_compression,
        kafka_name=None,
    ),
)

RECORDS = section(
    Setting(
        "key_serializer",
        "AnySerializer | None",
        None,
        "Called with `(topic, headers, key)` or `(key)`, returns bytes. Without it, keys must be "
        "bytes. Java has no default.",
        check_serializer,
        source=Source.PLUGIN,
    ),
    Setting(
        "value_serializer",
        "AnySerializer | None",
        None,
        "Called with `(topic, headers, value)` or `(value)`, returns bytes. Without it, values "
        "must be bytes. Java has no default.",
        check_serializer,
        source=Source.PLUGIN,
    ),
    Setting(
        "interceptors",
        "Sequence[ProducerInterceptor]",
        (),
        "`ProducerInterceptor` objects, which get each record before it is sent, and its outcome.",
        list_of(ProducerInterceptor),
        kafka_name="interceptor.classes",
        since="0.10, KIP-42",
        source=Source.PLUGINS,
    ),
    Setting(
        "partitioner",
        "CustomPartitioner | None",
        None,
        "Chooses the partitions of records. Without it, the built-in partitioner uses the hash "
        "of the key; records without a key stay on one partition until a batch is full "
        "(KIP-794).",
        _check_partitioner,
        kafka_name="partitioner.class",
        source=Source.PLUGIN,
    ),
    switch(
        "partitioner_adaptive_partitioning_enable",
        True,
        "Whether the built-in partitioner prefers partitions with a short queue.",
        since="3.3, KIP-794",
    ),
    milliseconds(
        "partitioner_availability_timeout_ms",
        0,
        0,
        "Time after which the built-in partitioner avoids partitions of a broker that accepts no "
        "records; 0 disables this. Requires adaptive partitioning.",
        since="3.3, KIP-794",
    ),
    switch(
        "partitioner_ignore_keys",
        False,
        "Whether the built-in partitioner ignores keys.",
        since="3.3, KIP-794",
    ),
)

TRANSACTIONS = section(
    Setting(
        "transactional_id",
        "str | None",
        None,
        "Enables transactions, under this name. `start()` fences an earlier producer with the "
        "same name, and aborts its open transaction, within `max_block_ms`. Requires idempotence.",
        check_name,
        since="0.11, KIP-98",
    ),
    milliseconds(
        "transaction_timeout_ms",
        60_000,
        1,
        "Time after which the broker aborts an open transaction. The broker allows at most its "
        "own `transaction.max.timeout.ms`.",
        since="0.11, KIP-98",
    ),
)

OBSERVERS = section(
    Setting(
        "observers",
        "Sequence[ProducerObserver]",
        (),
        "`ProducerObserver` objects, which are called for each batch, request and connection.",
        list_of(ProducerObserver),
        kafka_name=None,
        source=Source.PLUGINS,
    ),
)

#: The settings that only producers have.
PRODUCER_ONLY: Section = {
    **SENDING,
    **BATCHES,
    **RECORDS,
    **TRANSACTIONS,
    **OBSERVERS,
    **METRICS,
}
PRODUCER_SETTINGS: Mapping[str, Setting] = {**SECURITY, **CONNECTIONS, **PRODUCER_ONLY}
