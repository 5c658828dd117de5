"""The options for values and keys with schemas in a registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Final

from aioprod.config.redaction import SecretSettings
from aioprod.decoding_limits import DEFAULT_LIMITS, DecodingLimits
from aioprod.errors import ConfigError
from aioprod.spark.options import (
    KEY_NAMES,
    LIMIT_NAMES,
    REGISTRY_NAMES,
    REGISTRY_PREFIX,
    boolean,
    choice,
    positive,
)

FORMATS: Final = ("avro", "json-schema", "protobuf")
"""The values of ``value.format`` that need a registry, and those of ``key.format``."""

_PACKAGES: Final = ("aiohttp", "fastavro", "jsonschema")
_MODES: Final = ("failfast", "permissive", "dropmalformed")  # the default is that of from_avro
_FOR_JSON: Final = (
    "value.schema",
    "columnNameOfCorruptRecord",
    "timeZone",
    "allowNonNumericNumbers",
)
_SETTINGS: Final = tuple(
    name.removeprefix(REGISTRY_PREFIX)
    for name in REGISTRY_NAMES
    if name.startswith(REGISTRY_PREFIX)
)
_TOGETHER: Final = (("username", "password"), ("ssl.certificate", "ssl.key"))


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The location of the schema of values, or of keys.

    Attributes:
        format: ``avro``, ``json-schema`` or ``protobuf``.
        settings: the options ``schema.registry.*`` without this prefix.
        subject: the subject of the schema.
        version: the version's number; None for the latest.
        message: the full name of a Protobuf message; None for the first message in the file.
        mode: the handling of malformed values and keys in a read.
        include_raw: True if a read has the column ``rawValue``.
        limits: the limits on the cost of decoding a value.
        column: the column with this schema: ``value`` or ``key``.
        key: for ``value``, the location of the schema of keys; None if they stay binary.
    """

    format: str
    settings: Mapping[str, str] = field(repr=False)  # it may have a password
    subject: str
    version: int | None = None
    message: str | None = None
    mode: str = "failfast"
    include_raw: bool = False
    limits: DecodingLimits = DEFAULT_LIMITS
    column: str = "value"
    key: RegistryOptions | None = None


def parse_registry_options(
    given: Mapping[str, str], topic: str | None, *, writes: bool = False
) -> RegistryOptions | None:
    """Validate the options of a registry; return None if ``value.format`` does not need one.

    Args:
        given: the options of a read or write, their names in lower case.
        topic: the topic; None if there may be several.
        writes: True for a write.

    Raises:
        ConfigError: if an option is missing, malformed or without effect; the message names it.
    """
    needed = " or ".join(FORMATS)
    if given.get("value.format", "").strip().lower() not in FORMATS:
        if writes and "value.format" in given:
            choice(given, "value.format", FORMATS)
        for name in (*REGISTRY_NAMES, *LIMIT_NAMES, *KEY_NAMES):
            if name.lower() in given:
                raise ConfigError(f"option {name} requires value.format={needed}")
        return None
    form = choice(given, "value.format", FORMATS)
    for name in _FOR_JSON:
        if name.lower() in given:
            raise ConfigError(f"option {name} is for value.format=json, not for {form}")
    value = RegistryOptions(
        form,
        _registry_settings(given, form),
        _subject(given, "value", topic),
        _version(given, "value"),
        _message(given, "value", form),
        choice(given, "mode", _MODES),
        boolean(given, "includeRawValue", default=False),
        _limits(given),
    )
    return replace(value, key=_key(given, topic, value))


def _key(
    given: Mapping[str, str], topic: str | None, value: RegistryOptions
) -> RegistryOptions | None:
    """Return the location of the schema of keys; registry, mode and limits are those of values."""
    if "key.format" not in given:
        for name in KEY_NAMES:
            if name in given:
                raise ConfigError(f"option {name} requires key.format={' or '.join(FORMATS)}")
        return None
    form = choice(given, "key.format", FORMATS)
    return replace(
        value,
        format=form,
        subject=_subject(given, "key", topic),
        version=_version(given, "key"),
        message=_message(given, "key", form),
        column="key",
    )


def _subject(given: Mapping[str, str], column: str, topic: str | None) -> str:
    subject = given.get(f"{column}.subject", "").strip() or (topic and f"{topic}-{column}")
    if not subject:
        raise ConfigError(
            f"option {column}.subject is required unless there is exactly one topic, whose subject "
            f"is its name and -{column}"
        )
    return subject


def _message(given: Mapping[str, str], column: str, form: str) -> str | None:
    message = given.get(f"{column}.message", "").strip() or None
    if message is not None and form != "protobuf":
        raise ConfigError(
            f"option {column}.message is for {column}.format=protobuf, not for {form}"
        )
    return message


def _limits(given: Mapping[str, str]) -> DecodingLimits:
    linear = boolean(given, "value.linear.patterns", default=True)
    chosen: dict[str, Any] = {
        name.removeprefix("value.").replace(".", "_"): positive(given, name)
        for name in LIMIT_NAMES
        if name.startswith("value.max.") and name in given
    }
    return replace(DEFAULT_LIMITS, linear_patterns=linear, **chosen)


def _registry_settings(given: Mapping[str, str], form: str) -> SecretSettings:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"option value.format={form} needs the packages {', '.join(missing)}: python -m pip "
            "install 'aioprod[spark,schema-registry]'"
        )
    settings = SecretSettings(
        (name, given[REGISTRY_PREFIX + name].strip())
        for name in _SETTINGS
        if REGISTRY_PREFIX + name in given
    )
    if not settings.get("url"):
        raise ConfigError(
            f"option schema.registry.url is required with value.format={form}, for example "
            '"http://localhost:8081"'
        )
    for one, other in _TOGETHER:
        if (one in settings) != (other in settings):
            raise ConfigError(
                f"options {REGISTRY_PREFIX}{one} and {REGISTRY_PREFIX}{other} belong together"
            )
    return settings


def _version(given: Mapping[str, str], column: str) -> int | None:
    text = given.get(f"{column}.schema.version", "latest").strip().lower()
    if text == "latest":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(
            f"option {column}.schema.version must be latest or a number of at least 1, got {text!r}"
        )
    return int(text)
