"""The declaration of a setting.

The modules of ``aioprod.config.settings`` declare the settings. A declaration contains the check of
the value, and how text is converted (``from_config``). ``python -m aioprod._tools.generate_config``
generates from it the dataclass field, the typed keyword argument, the text that ``help()`` shows,
and the row in docs/configuration.md.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from aioprod.config.checks import (
    MAX_INT,
    Check,
    accept,
    check_secret_text,
    in_range,
    one_of,
    or_none,
)
from aioprod.errors import ConfigError

MAX_LONG = 2**63 - 1


class Source(Enum):
    """A value that ``from_config`` accepts for a setting."""

    VALUE = "the value, or its text"
    PLUGIN = "an object, its class, or the import path of either"
    PLUGINS = "a list of these"
    NAMES_OR_PLUGINS = "a list of names, or of these"
    FUNCTION = "a function or its import path, which may be secret"


class Setting(NamedTuple):
    """The declaration of a setting.

    Attributes:
        name: the name in Python.
        type: the annotation of its field.
        default: the default value.
        meaning: description of the setting in one or two sentences, as Markdown.
        check: checks a value, and returns the value to use.
        values: description of the allowed values.
        unit: the unit of the number.
        kafka_name: Kafka's name if that is not ``name`` with dots; None if Kafka has no such
            setting.
        since: the first Kafka version with this setting, and its KIP.
        hidden: True if the value is left out of reprs and not passed to plug-ins.
        source: the values that ``from_config`` accepts.
        java_classes: the names that replace Java's classes, if ``source`` is NAMES_OR_PLUGINS.
        shown_default: the effective default, if it is not ``default``.
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
    java_classes: Mapping[str, str] = MappingProxyType({})
    shown_default: str | None = None

    @property
    def dotted_name(self) -> str:
        """The name in properties files: Kafka's, or the Python name with dots."""
        return self.kafka_name or self.name.replace("_", ".")

    def parse(self, text: str) -> Any:
        """Convert a text from a properties file.

        Raises:
            ConfigError: if the text does not have the type of the setting.
        """
        if self.hidden:
            return text  # a password may begin or end with spaces
        return _parse(self.name, self.type, text.strip())


Section = Mapping[str, Setting]
"""Settings by name, under one heading of docs/configuration.md."""


class SettingsTable:
    """All settings of a kind of client.

    Attributes:
        kind: the class of the client's configuration.
        client: the name of the kind of client, for errors.
        settings: the settings by Python name.
        unsupported: settings of the Java client that aioprod does not support, and why.
    """

    def __init__(
        self,
        kind: type[Any],
        client: str,
        settings: Mapping[str, Setting],
        unsupported: Mapping[str, str],
    ) -> None:
        self.kind = kind
        self.client = client
        self.settings = settings
        self.unsupported = unsupported

    @cached_property
    def _renamed(self) -> Mapping[str, str]:
        return {setting.dotted_name: name for name, setting in self.settings.items()}

    @property
    def dotted_names(self) -> Iterable[str]:
        """The names of the settings in properties files."""
        return self._renamed

    def python_name(self, given: str) -> str:
        """Return the Python name of a setting, given with dots or underscores."""
        return self._renamed.get(given.replace("_", "."), given.replace(".", "_"))

    def knows(self, given: str) -> bool:
        """Return whether aioprod or the Java client has this setting."""
        return (
            self.python_name(given) in self.settings or given.replace("_", ".") in self.unsupported
        )


def section(*settings: Setting) -> Section:
    """Return the settings of one heading."""
    return {setting.name: setting for setting in settings}


def all_settings(sections: Iterable[Section]) -> dict[str, Setting]:
    """Merge sections. Settings of later sections override those of earlier ones."""
    return {name: setting for each in sections for name, setting in each.items()}


def apply_checks(config: object, settings: Iterable[Setting]) -> None:
    """Check the settings of a frozen dataclass, and store the values to use.

    Raises:
        ConfigError: if a value is invalid.
    """
    for setting in settings:
        name = setting.name
        value = getattr(config, name)
        kept = setting.check(name, value)
        if kept is not value:
            object.__setattr__(config, name, kept)


def check_growth(config: object, name: str, largest: str) -> None:
    """Check the setting ``largest``, the limit up to which ``name`` grows; None is allowed.

    Raises:
        ConfigError: if it is below the value of ``name``.
    """
    limit, size = getattr(config, largest), getattr(config, name)
    if limit is not None and limit < size:
        raise ConfigError(f"{largest}={limit}: must be at least {name}={size}")


def is_default(config: Any, name: str) -> bool:
    """Return whether a setting has its default value."""
    return bool(getattr(config, name) == config.__dataclass_fields__[name].default)


def grown_limit(config: Any, name: str, largest: str, by_default: int) -> int:
    """Return the limit up to which ``name`` grows: the setting ``largest``, or ``by_default`` if
    that is None. If ``name`` itself is not the default, it is the limit, as in the Java client.
    """
    limit: int | None = getattr(config, largest)
    if limit is not None:
        return limit
    size: int = getattr(config, name)
    return by_default if is_default(config, name) else size


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
    """Declare a time in milliseconds, which may be fractional."""
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
    """Declare a boolean."""
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
        literal(*names) if default is not None else f"{literal(*names)} | None",
        default,
        meaning,
        check if default is not None else or_none(check),
        ", ".join(f"`{each}`" for each in names),
        kafka_name=kafka_name,
        since=since,
    )


def secret(name: str, meaning: str, *, kafka_name: str | None = "", since: str = "") -> Setting:
    """Declare a secret string."""
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
    """Declare a string, which is None if it is not set."""
    return Setting(
        name,
        "str | None",
        None,
        meaning,
        check_secret_text,
        kafka_name=kafka_name,
        since=since,
    )


def literal(*values: str | int) -> str:
    """Return the annotation of a setting with one of several values."""
    shown = (f'"{value}"' if isinstance(value, str) else str(value) for value in values)
    return f"Literal[{', '.join(shown)}]"


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


# Conversions of text, by the annotation of a setting.
_CONVERTERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bool": ("true or false", _switch),
    "int": ("a whole number", int),
    "int | None": ("a whole number", int),
    "float": ("a number", float),
}
