"""The options of writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aioprod.config.producer import ProducerConfig
from aioprod.config.redaction import SecretSettings, hide_arguments
from aioprod.errors import ConfigError
from aioprod.spark.options import (
    DEFAULT_PREFIX,
    SET_BY_SPARK,
    SINK_NAMES,
    SOURCE_NAMES,
    check_option_names,
    client_settings,
    dotted_names,
    lower_keys,
    named_as_options,
    typed_settings,
    whole,
)
from aioprod.spark.registered.options import RegistryOptions, parse_registry_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from aioprod.spark.registered.schemas import RegisteredValue

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
DEFAULT_DECISION_TOPIC = "__aioprod_decisions"

# A task has all its rows available, so larger batches fill immediately. Kafka's 16 KiB is for
# records that arrive one by one.
_PRODUCER_DEFAULTS = {"batch_size": 128 * 1024}
# The brokers' default maximum: it must be enough for a micro-batch and a restart of its driver.
_TRANSACTION_DEFAULTS = {"transaction_timeout_ms": 900_000}
# Settings that exactly-once requires, at their defaults.
_NEEDED = {"acks": ("all", "-1"), "enable_idempotence": (True,)}
_NAMES = dotted_names(ProducerConfig)
_CLIENT_NAMES = frozenset(_NAMES.values()) - SET_BY_SPARK.keys()


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The validated options of a write.

    Attributes:
        topic: the topic of all rows; None to use the column ``topic``.
        producer: keyword arguments of `aioprod.Producer`.
        delivery: ``exactly-once`` or ``at-least-once``.
        transactional_id_prefix: the prefix of the sink's transactional ids and consumer group.
        txn_app_id, txn_version: the id of the writer and the number of its write; each pair is
            written once. None if not given.
        decision_topic: the topic for decisions that are too long for an offset's metadata.
        on_replay_mismatch: ``fail`` or ``warn`` if a batch that was written before now has other
            rows.
        skip_lost_batch: the number of a batch to continue after, even though some of its rows are
            lost.
        checkpoint: the directory of the stream's checkpoint; None for other writes.
        registry: the location of the schema of values, if they have one.
        registered: that schema, once it has been requested.
    """

    topic: str | None
    producer: Mapping[str, Any] = field(repr=False)  # it may have passwords
    delivery: str = EXACTLY_ONCE
    transactional_id_prefix: str = DEFAULT_PREFIX
    txn_app_id: str | None = None
    txn_version: int | None = None
    decision_topic: str = DEFAULT_DECISION_TOPIC
    on_replay_mismatch: str = "fail"
    skip_lost_batch: int | None = None
    checkpoint: str | None = None
    registry: RegistryOptions | None = None
    registered: RegisteredValue | None = None


@hide_arguments
def parse_sink_options(options: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """Validate the options of a write, including the producer's settings.

    Raises:
        ConfigError: if an option is missing, unknown, unsupported, out of range, or contradicts
            another.
    """
    given = lower_keys(options)
    client = client_settings(given, _CLIENT_NAMES, "write")
    check_option_names(given, SINK_NAMES, kind="write", other=SOURCE_NAMES, other_kind="read")
    with named_as_options(_NAMES):
        settings = typed_settings(ProducerConfig, client)
    delivery = _choice(given, "delivery", EXACTLY_ONCE, AT_LEAST_ONCE)
    defaults: dict[str, Any] = {**_PRODUCER_DEFAULTS}
    if delivery == EXACTLY_ONCE:
        _check_needed(settings)
        defaults |= _TRANSACTION_DEFAULTS
    producer = SecretSettings(defaults | settings)
    # Validated here on the driver, not only in each task.
    with named_as_options(_NAMES):
        ProducerConfig(**producer)
    app_id, version = _text(given, "txnAppId"), whole(given, "txnVersion")
    if (app_id is None) != (version is None):
        raise ConfigError("options txnAppId and txnVersion belong together: give both or neither")
    if streaming and app_id is not None:
        raise ConfigError(
            "options txnAppId and txnVersion are for batch writes: a stream has its query's "
            "id and the numbers of its batches"
        )
    for name in (
        "txnappid",
        "transactionalidprefix",
        "decisiontopic",
        "onreplaymismatch",
        "skiplostbatch",
    ):
        if delivery == AT_LEAST_ONCE and name in given:
            raise ConfigError(f"option {_spelled(name)} needs delivery=exactly-once")
    return SinkOptions(
        topic=_text(given, "topic"),
        producer=producer,
        delivery=delivery,
        transactional_id_prefix=_text(given, "transactionalIdPrefix") or DEFAULT_PREFIX,
        txn_app_id=app_id,
        txn_version=version,
        decision_topic=_text(given, "decisionTopic") or DEFAULT_DECISION_TOPIC,
        on_replay_mismatch=_choice(given, "onReplayMismatch", "fail", "warn"),
        skip_lost_batch=whole(given, "skipLostBatch"),
        checkpoint=given.get("checkpointlocation"),
        registry=parse_registry_options(given, _text(given, "topic"), writes=True),
    )


def with_schema(options: SinkOptions, columns: StructType) -> SinkOptions:
    """Return the options with the schemas of values and keys, if they have any. The driver requests
    these here.

    Raises:
        ConfigError: if there is no such schema, or the columns do not match it.
    """
    if options.registry is None or "value" not in columns.names:
        return options
    from aioprod.spark.registered.encoding import check_value
    from aioprod.spark.registered.schemas import fetch_schema

    if options.registry.key is not None and "key" not in columns.names:
        raise ConfigError("option key.format needs the column key, which the data does not have")
    value = fetch_schema(options.registry)
    for each in (value, value.key):
        if each is not None:
            check_value(each, columns[each.options.column].dataType)
    return replace(options, registered=value)


def _check_needed(settings: Mapping[str, Any]) -> None:
    for name, needed in _NEEDED.items():
        if name in settings and settings[name] not in needed:
            dotted = name.replace("_", ".")
            raise ConfigError(
                f"option kafka.{dotted}={str(settings[name]).lower()} contradicts "
                "delivery=exactly-once, the default: leave it out, "
                "or set delivery=at-least-once"
            )


def _spelled(name: str) -> str:
    return next(each for each in SINK_NAMES if each.lower() == name)


def _text(given: Mapping[str, str], name: str) -> str | None:
    text = given.get(name.lower())
    if text is not None and not text.strip():
        raise ConfigError(f"option {name} is empty")
    return text


def _choice(given: Mapping[str, str], name: str, *choices: str) -> str:
    text = given.get(name.lower(), choices[0]).lower()
    if text not in choices:
        raise ConfigError(f"option {name} must be {' or '.join(choices)}, got {text!r}")
    return text
