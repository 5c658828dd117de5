"""The options of writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aioprod.config.producer import ProducerConfig
from aioprod.config.redaction import SecretSettings, hide_arguments
from aioprod.errors import ConfigError
from aioprod.spark.options import (
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

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
DEFAULT_PREFIX = "aioprod-spark"
DEFAULT_DECISION_TOPIC = "__aioprod_decisions"

# A task has all its rows at hand: larger batches fill at once. Kafka's 16 KiB is for records that
# come one by one.
_PRODUCER_DEFAULTS = {"batch_size": 128 * 1024}
# As long as brokers allow unless told otherwise: a micro-batch and a restart of its driver have to
# fit in.
_TRANSACTION_DEFAULTS = {"transaction_timeout_ms": 900_000}
# What exactly-once can't do without, and what it is by default.
_NEEDED = {"acks": ("all", "-1"), "enable_idempotence": (True,)}
_NAMES = dotted_names(ProducerConfig)
_CLIENT_NAMES = frozenset(_NAMES.values()) - SET_BY_SPARK.keys()


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a write.

    Attributes:
        topic: the topic of all rows; without it each row names its own in the column ``topic``.
        producer: keyword arguments of `aioprod.Producer`.
        delivery: ``exactly-once`` or ``at-least-once``.
        transactional_id_prefix: how all transactional ids and the consumer group of the sink begin.
        txn_app_id, txn_version: who writes, and which of its writes this is: the same pair is
            written once. None without them.
        decision_topic: where decisions go that are too long for an offset's metadata.
        on_replay_mismatch: ``fail`` or ``warn``, where a batch that was written before has other
            rows now.
        skip_lost_batch: the number of a batch that may go on although rows of it are lost.
    """

    topic: str | None
    producer: Mapping[str, Any] = field(repr=False)  # it may hold passwords
    delivery: str = EXACTLY_ONCE
    transactional_id_prefix: str = DEFAULT_PREFIX
    txn_app_id: str | None = None
    txn_version: int | None = None
    decision_topic: str = DEFAULT_DECISION_TOPIC
    on_replay_mismatch: str = "fail"
    skip_lost_batch: int | None = None


@hide_arguments
def parse_sink_options(options: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """Check the options of a write, the producer's settings among them.

    Raises:
        ConfigError: an option is missing, unknown, not supported, outside its limits, or
            contradicts another.
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
    # Here, on the driver, and not first in each task.
    with named_as_options(_NAMES):
        ProducerConfig(**producer)
    app_id, version = _text(given, "txnAppId"), whole(given, "txnVersion")
    if (app_id is None) != (version is None):
        raise ConfigError("options txnAppId and txnVersion belong together: give both, or none")
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
    )


def _check_needed(settings: Mapping[str, Any]) -> None:
    for name, needed in _NEEDED.items():
        if name in settings and settings[name] not in needed:
            dotted = name.replace("_", ".")
            raise ConfigError(
                f"option kafka.{dotted}={str(settings[name]).lower()} contradicts "
                "delivery=exactly-once, the default: leave it away, "
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
