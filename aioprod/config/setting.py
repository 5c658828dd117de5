"""One declaration for each setting.

The modules of ``aioprod.config.settings`` declare the settings. From a declaration come its check,
its value from text (``from_config``), and, by ``python -m aioprod._tools.generate_config``, the
dataclass field, the typed keyword argument, the text that ``help()`` shows, and the row in
docs/configuration.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aioprod.config.checks import MAX_INT, Check, accept, check_secret_text, in_range, one_of
from aioprod.errors import ConfigError

MAX_LONG = 2**63 - 1


class Source(Enum):
    """How ``from_config`` makes the value of a setting."""

    VALUE = "the value, or its text"
    PLUGIN = "an object, its class, or the import path of either"
    PLUGINS = "a list of these"
    NAMES_OR_PLUGINS = "a list of names, or of these"
    FUNCTION = "a function or its import path, which may be secret"


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of a setting.

    Attributes:
        name: the name in Python.
        type: the annotation of its field.
        default: the default value.
        meaning: what the setting does, in one or two sentences, as Markdown.
        check: checks a value and returns the one to keep.
        values: the allowed values in words.
        unit: the unit of its number.
        kafka_name: Kafka's name if it is not ``name`` with dots; None if Kafka has no such setting.
        since: the first Kafka version that has it, and its KIP.
        hidden: whether its value is left out of reprs and withheld from plug-ins.
        source: how ``from_config`` makes its value.
        java_classes: names for Java's classes, if ``source`` is NAMES_OR_PLUGINS.
        shown_default: the default that a client uses if it is not ``default``.
    """

    name: str
    type: str
    default: Any
    meaning: str
    check: Check = accept
    values: str = ""
    unit: str = ""
    kafka_name: str | None = ""
    since: str = ""
    hidden: bool = False
    source: Source = Source.VALUE
    java_classes: Mapping[str, str] = field(default_factory=dict)
    shown_default: str | None = None

    @property
    def dotted_name(self) -> str:
        """The name in properties files: Kafka's, or the Python name with dots."""
        return self.kafka_name or self.name.replace("_", ".")

    def parse(self, text: str) -> Any:
        """Convert the text of a properties file.

        Raises:
            ConfigError: if the text does not have the type of the setting.
        """
        if self.hidden:
            return text  # a password may begin or end with spaces
        return _parse(self.name, self.type, text.strip())


Section = Mapping[str, Setting]
"""Settings by name, under one heading of docs/configuration.md."""


def section(*settings: Setting) -> Section:
    """Put settings under one heading."""
    return {setting.name: setting for setting in settings}


def all_settings(sections: Iterable[Section]) -> dict[str, Setting]:
    """Merge sections; a later one overrides a setting of an earlier one."""
    return {name: setting for each in sections for name, setting in each.items()}


def apply_checks(config: object, settings: Iterable[Setting]) -> None:
    """Check the settings of a frozen dataclass and store the values to keep.

    Raises:
        ConfigError: if a value is invalid.
    """
    for setting in settings:
        name = setting.name
        value = getattr(config, name)
        kept = setting.check(name, value)
        if kept is not value:
            object.__setattr__(config, name, kept)


def milliseconds(
    name: str,
    default: float,
    low: int,
    meaning: str,
    *,
    type: str = "int",
    kafka_name: str | None = "",
    since: str = "",
) -> Setting:
    """Declare a time in milliseconds, which may have a fraction."""
    return Setting(
        name,
        type,
        default,
        meaning,
        in_range(low, MAX_INT, fraction=True),
        _range(low, MAX_INT),
        "ms",
        kafka_name,
        since,
    )


def number(
    name: str,
    default: int,
    low: int,
    meaning: str,
    *,
    high: int = MAX_INT,
    unit: str = "",
    since: str = "",
    kafka_name: str | None = "",
) -> Setting:
    """Declare a whole number."""
    return Setting(
        name,
        "int",
        default,
        meaning,
        in_range(low, high),
        _range(low, high),
        unit,
        kafka_name,
        since,
    )


def switch(
    name: str, default: bool, meaning: str, *, kafka_name: str | None = "", since: str = ""
) -> Setting:
    """Declare a setting that is True or False."""
    return Setting(
        name,
        "bool",
        default,
        meaning,
        one_of((True, False)),
        kafka_name=kafka_name,
        since=since,
    )


def choice(
    name: str,
    default: str | None,
    choices: Iterable[str],
    meaning: str,
    *,
    change_case: Callable[[str], str] | None = None,
    kafka_name: str | None = "",
    since: str = "",
) -> Setting:
    """Declare a setting that is one of several names."""
    names = tuple(choices)
    check = one_of(names, change_case)
    return Setting(
        name,
        "str" if default is not None else "str | None",
        default,
        meaning,
        check if default is not None else _or_none(check),
        ", ".join(f"`{each}`" for each in names),
        kafka_name=kafka_name,
        since=since,
    )


def secret(name: str, meaning: str, *, kafka_name: str | None = "", since: str = "") -> Setting:
    """Declare text that must not be shown."""
    return Setting(
        name,
        "str | None",
        None,
        meaning,
        check_secret_text,
        kafka_name=kafka_name,
        since=since,
        hidden=True,
    )


def text(name: str, meaning: str, *, kafka_name: str | None = "", since: str = "") -> Setting:
    """Declare text that may be shown, or is not set."""
    return Setting(
        name,
        "str | None",
        None,
        meaning,
        check_secret_text,
        kafka_name=kafka_name,
        since=since,
    )


def _or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _range(low: int, high: int) -> str:
    return f"at least {low:,}" if high in (MAX_INT, MAX_LONG) else f"{low:,} to {high:,}"


def _parse(name: str, kind: str, text: str) -> Any:
    expected, convert = _CONVERTERS.get(kind, ("text", str))
    try:
        return convert(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r}: must be {expected}") from None


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


# How text becomes a value, by the annotation of a setting.
_CONVERTERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bool": ("true or false", _switch),
    "int": ("a whole number", int),
    "int | None": ("a whole number", int),
    "float": ("a number", float),
}
