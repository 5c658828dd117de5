"""The common parts of the options of reads and writes: Spark's own names, ``kafka.*`` settings for
the client, and an error for unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from aioprod.config.msk_iam import with_tokens
from aioprod.errors import ConfigError
from aioprod.foreign_text import nearest
from aioprod.logs import Logger, get_logger
from aioprod.spark.json_options import MAX_OFFSET, shown
from aioprod.spark.token_provider import ImportedTokenProvider

log: Logger = get_logger(__name__)

BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"
CLIENT_PREFIX = "kafka."
#: The default of the option transactionalIdPrefix.
DEFAULT_PREFIX = "aioprod-spark"

REGISTRY_PREFIX = "schema.registry."
#: The options for values with a schema in a registry.
REGISTRY_NAMES = (
    "schema.registry.url",
    "schema.registry.username",
    "schema.registry.password",
    "schema.registry.token",
    "schema.registry.context",
    "schema.registry.ssl.ca",
    "schema.registry.ssl.certificate",
    "schema.registry.ssl.key",
    "schema.registry.ssl.key.password",
    "value.subject",
    "value.schema.version",
    "value.message",
)
#: The options for keys with a schema in a registry.
KEY_NAMES = ("key.format", "key.subject", "key.schema.version", "key.message")
#: The limits on the cost of decoding a value in a read: the fields of ``DecodingLimits``.
LIMIT_NAMES = (
    "value.max.depth",
    "value.max.empty.values",
    "value.max.decimal.digits",
    "value.max.checks",
    "value.linear.patterns",
)
#: The options for typed values.
TYPED_NAMES = (
    "value.format",
    "value.schema",
    "mode",
    "columnNameOfCorruptRecord",
    "timeZone",
    "allowNonNumericNumbers",
    "includeRawValue",
)
#: The option for records that can't be decoded.
DEAD_LETTER_TOPIC = "deadLetterTopic"
SOURCE_NAMES = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "minRecordsPerPartition",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "failOnDataLoss",
    "includeHeaders",
    DEAD_LETTER_TOPIC,
    "transactionalIdPrefix",
    *TYPED_NAMES,
    *REGISTRY_NAMES,
    *LIMIT_NAMES,
    *KEY_NAMES,
)
SINK_NAMES = (
    "value.format",
    *REGISTRY_NAMES,
    *KEY_NAMES,
    "topic",
    "includeHeaders",
    "delivery",
    "transactionalIdPrefix",
    "txnAppId",
    "txnVersion",
    "decisionTopic",
    "onReplayMismatch",
    "skipLostBatch",
)
# Spark adds these to the options.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path", "paths", "table"})
# An option that Spark adds only for CREATE TABLE.
_OF_A_TABLE = "provider"
# Options of Spark's own connector that are refused instead of ignored.
_NOT_SUPPORTED = {
    "groupIdPrefix": (
        "reads join no consumer group; kafka.group.id names one to commit a stream's positions to"
    )
}
# Settings whose default is None, which does not show their type.
_WHOLE_NUMBERS = frozenset({"compression_level"})
#: Settings that Spark or the sink sets, and what to use instead.
SET_BY_SPARK = {
    "group.id": "only reads can have a consumer group, to commit a stream's positions to",
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "the source commits no offsets: Spark's checkpoint has them",
    "key.deserializer": "keys arrive as binary; cast the column, or set key.format",
    "value.deserializer": "values arrive as binary; cast the column, or set value.format",
    "key.serializer": "make the column key string or binary",
    "value.serializer": "make the column value string or binary",
    "interceptor.classes": "Java interceptors cannot run in Python",
    "interceptors": "options are text, these are objects",
    "observers": "options are text, these are objects",
    "partitioner": "options are text, this is an object; fill the column partition",
    "ssl.context": "options are text, this is an object; use kafka.ssl.truststore.location",
    "transactional.id": (
        "the sink makes an id for each task; the option transactionalIdPrefix sets their prefix"
    ),
}


#: Settings of Java's clients that Spark jobs often have, and that have no effect here: reads do not
#: join a group, and there are no Java metrics and classes.
WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "exclude.internal.topics",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "security.providers",
        "session.timeout.ms",
    }
)
# Warnings of this process: Spark parses the options of a query several times.
_warned: set[str] = set()

# Java's clients create tokens with classes that these settings name and configure; some of the
# settings configure aioprod.oauth.
_JAVA_TOKENS = ("sasl.oauthbearer.", "sasl.login.", "sasl.client.callback.")
_TOKEN_PROVIDER = "sasl.oauth.token.provider"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"


def lower_keys(options: Mapping[str, str]) -> dict[str, str]:
    # Spark's option names ignore case; Python data sources get them in lower case.
    return {name.lower(): value for name, value in options.items()}


def client_settings(
    given: Mapping[str, str], allowed: Collection[str], kind: str
) -> dict[str, str]:
    """Return the ``kafka.*`` options without the prefix; error messages name ``kind``. Options
    without an effect are dropped with a warning.

    Raises:
        ConfigError: if one is not allowed, or the bootstrap servers are missing.
    """
    client = {
        name.removeprefix(CLIENT_PREFIX): value
        for name, value in given.items()
        if name.startswith(CLIENT_PREFIX)
    }
    client = dict(with_tokens(client, f"option {CLIENT_PREFIX}"))
    for name in (client.keys() & WITHOUT_EFFECT) - set(allowed):
        del client[name]
        if name not in _warned:
            _warned.add(name)
            log.warning("option %s%s has no effect on %ss", CLIENT_PREFIX, name, kind)
    for name in client:
        if name in SET_BY_SPARK and name not in allowed:
            raise ConfigError(
                f"option {CLIENT_PREFIX}{name} is not supported: {SET_BY_SPARK[name]}"
            )
        if name.startswith(_JAVA_TOKENS) and name not in allowed:
            raise ConfigError(
                f"option {CLIENT_PREFIX}{name} is not supported: it is for Java's classes; "
                f"{CLIENT_PREFIX}{_TOKEN_URL} makes the client request tokens, and "
                f"{CLIENT_PREFIX}{_TOKEN_PROVIDER} takes the import path of an async function "
                "that returns an aioprod.OAuthToken"
            )
        if name not in allowed:
            raise ConfigError(
                f"option {CLIENT_PREFIX}{name} is not supported for "
                f"{kind}s{_hint(name, allowed, CLIENT_PREFIX)}"
            )
    if not client.get("bootstrap.servers", "").strip():
        raise ConfigError(f'option {BOOTSTRAP_SERVERS} is required, for example "localhost:9092"')
    return client


def dotted_names(kind: type[Any]) -> dict[str, str]:
    """Return the option names of a class's settings, without the prefix, by their Python names."""
    return {item.name: item.name.replace("_", ".") for item in fields(kind)}


@contextmanager
def named_as_options(names: Mapping[str, str]) -> Iterator[None]:
    """Make errors about settings name the options: ``kafka.batch.size``, not ``batch_size``.

    Args:
        names: option names without the prefix, by the names in errors.
    """
    try:
        yield
    except ConfigError as error:
        # "acks" may be an ordinary word; "batch_size" can only be a setting.
        known = "|".join(name if "_" in name else f"{name}(?==)" for name in names)
        text = re.sub(
            rf"(?:{re.escape(CLIENT_PREFIX)})?\b({known})\b",
            lambda found: CLIENT_PREFIX + names[found[1]],
            str(error),
        )
        raise ConfigError(text if text.startswith("option") else f"option {text}") from None


def check_option_names(
    given: Mapping[str, str],
    names: Collection[str],
    *,
    kind: str,
    other: Collection[str],
    other_kind: str,
) -> None:
    if _OF_A_TABLE in given:
        raise ConfigError(
            "CREATE TABLE is not supported: Spark keeps no options for a Python data "
            "source's table; use CREATE TEMPORARY VIEW"
        )
    known = {name.lower() for name in names} | _SPARKS_OWN
    for name in given:
        if name in known or name.startswith(CLIENT_PREFIX):
            continue
        for foreign in other:
            if name == foreign.lower():
                raise ConfigError(f"option {foreign} is for {other_kind}s only, this is a {kind}")
        for refused, reason in _NOT_SUPPORTED.items():
            if name == refused.lower():
                raise ConfigError(
                    f"option {refused} of Spark's Kafka connector is not supported: {reason}"
                )
        raise ConfigError(f"unknown option {name}{_hint(name, (*names, BOOTSTRAP_SERVERS))}")


def _hint(name: str, candidates: Collection[str], prefix: str = "") -> str:
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = nearest(name, by_lower)
    return f"; did you mean {prefix}{by_lower[near]}?" if near else ""


def boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option {name} must be true or false, got {text!r}")
    return text.lower() == "true"


def choice(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Return the option's value in lower case; by default the first of the choices."""
    text = given.get(name.lower(), choices[0]).strip().lower()
    if text not in choices:
        raise ConfigError(f"option {name} must be {' or '.join(choices)}, got {shown(text)}")
    return text


def positive(given: Mapping[str, str], name: str) -> int | None:
    return whole(given, name, least=1)


def whole(given: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    number = int(text) if _WHOLE.fullmatch(text.strip()) else None
    if number is None or not least <= number <= MAX_OFFSET:
        limit = f" and at most {MAX_OFFSET}" if number is not None and number > least else ""
        expected = f"a whole number of at least {least}{limit}"
        raise ConfigError(f"option {name} must be {expected}, got {shown(text)}")
    return number


# Python refuses to parse thousands of digits.
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_TIME = re.compile(r"([0-9]{1,15})\s*(ms|s|m|min|h|d|)")
_MILLISECONDS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def milliseconds(given: Mapping[str, str], name: str, *, default: int) -> int:
    """Parse a duration in Spark's format: ``500ms``, ``90s``, ``15m``, ``1h``."""
    text = given.get(name.lower())
    if text is None:
        return default
    match = _TIME.fullmatch(text.strip().lower())
    if match is None:
        expected = "a time such as 500ms, 90s, 15m or 1h"
        raise ConfigError(f"option {name} must be {expected}, got {shown(text)}")
    return int(match[1]) * _MILLISECONDS[match[2]]


def typed_settings(kind: type[Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Convert each setting to the type of its default in a dataclass, because Spark's options are
    text. Names may have dots. Settings that the class does not have are returned unchanged.

    Raises:
        ConfigError: if the text is not of that type.
    """
    defaults = {item.name: item.default for item in fields(kind)}
    typed: dict[str, Any] = {}
    for dotted, text in given.items():
        name = dotted.replace(".", "_")
        if name == "sasl_oauth_token_provider":
            typed[name] = ImportedTokenProvider(text.strip())
            continue
        try:
            typed[name] = _typed(text, defaults.get(name), name)
        except ValueError:
            raise ConfigError(
                f"option {CLIENT_PREFIX}{dotted}={text!r}: must be {_kind_of(defaults.get(name))}"
            ) from None
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
