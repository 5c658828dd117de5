"""A client's configuration as it is written for Java: dotted names, values that may be text,
classes by name.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields
from functools import cached_property
from typing import Any

from aioprod.config.client import ClientConfig
from aioprod.config.plugins import PluginLoader, import_object
from aioprod.errors import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClientSettings:
    """What the settings of one kind of client are read by.

    Attributes:
        kind: the class of its configuration.
        client: what Java calls such a client, for errors.
        renamed: Kafka's names that are more than ours with dots.
        absent: settings of Java's that are not here, and why.
        single_parts, listed_parts: settings that are objects of the user's, or lists of these.
        named_parts: settings that are lists of names or objects, with the names of what Java has
            classes for.
    """

    kind: type[ClientConfig]
    client: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    single_parts: tuple[str, ...] = ()
    listed_parts: tuple[str, ...] = ()
    named_parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def fields(self) -> Mapping[str, Field[Any]]:
        """The settings by our names."""
        return {each.name: each for each in fields(self.kind)}

    def python_name(self, given: str) -> str:
        """Our name for a setting whose name is written with dots or underscores."""
        return self.renamed.get(given.replace("_", "."), given.replace(".", "_"))

    def knows(self, given: str) -> bool:
        """Whether Java's client of this kind has such a setting, here or not."""
        return self.python_name(given) in self.fields or given.replace("_", ".") in self.absent


@contextmanager
def client_arguments(
    form: ClientSettings,
    settings: Mapping[str, Any],
    new_client_id: Callable[[Mapping[str, Any]], str],
) -> Iterator[dict[str, Any]]:
    """Kafka's own names and values as keyword arguments of a client.

    Names may have dots or underscores. A value may be text. Serializers, partitioner, interceptors
    and observers may be
    classes or import paths: these are made and configured here, and closed again where the body of
        ``with`` fails.

    Args:
        form: the kind of client.
        settings: such as ``{"bootstrap.servers": "...", "linger.ms": "5"}``.
        new_client_id: makes the ``client.id`` where none is set, of the other arguments.

    Raises:
        ConfigError: a name or value that is not known, not supported or out of its limits.
    """
    loader = PluginLoader()
    try:
        arguments = {
            name: _typed(form, loader, name, value)
            for name, value in _named(form, settings).items()
        }
        if "client_id" not in arguments:
            arguments["client_id"] = new_client_id(arguments)
        config = form.kind(**arguments)
        # What is hidden from a repr is secret: no part of the user's needs it.
        loader.configure(
            {name: getattr(config, name) for name, setting in form.fields.items() if setting.repr}
        )
        yield arguments
    except BaseException:
        loader.close()
        raise


def _named(form: ClientSettings, settings: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(settings, Mapping):  # it is not shown: it may hold a password
        raise ConfigError(
            f"settings of type {type(settings).__name__}: must be a mapping from names to values"
        )
    named: dict[str, Any] = {}
    for given, value in settings.items():
        if not isinstance(given, str):
            raise ConfigError(f"the name of a setting is {given!r}: must be a string")
        name = form.python_name(given)
        if name not in form.fields:
            raise _unknown(form, given)
        if name in named:
            raise ConfigError(f"{given} is set twice, with dots and with underscores")
        named[name] = value
    return named


def _unknown(form: ClientSettings, given: str) -> ConfigError:
    dotted = given.replace("_", ".")
    if dotted in form.absent:
        return ConfigError(
            f"setting {given!r} of Java's {form.client} is not there: {form.absent[dotted]}"
        )
    known = [*form.renamed, *(name.replace("_", ".") for name in form.fields)]
    near = difflib.get_close_matches(dotted, known, 1)
    if not near:
        return ConfigError(f"unknown setting {given!r}; docs/configuration.md lists all")
    return ConfigError(
        f"unknown setting {given!r}: did you mean "
        f"{near[0] if '.' in given else near[0].replace('.', '_')!r}?"
    )


def _typed(form: ClientSettings, loader: PluginLoader, name: str, value: Any) -> Any:
    if name in form.single_parts:
        return loader.one(name, value)
    if name in form.listed_parts:
        return loader.many(name, value)
    if name in form.named_parts:
        return _named_parts(loader, name, value, form.named_parts[name])
    if not isinstance(value, str):
        return value
    if name == "sasl_oauth_token_provider":
        return import_object(name, value.strip(), is_secret=True)
    setting = form.fields[name]
    if not setting.repr:
        return value  # a password may begin or end with spaces
    kind, read = _READERS.get(str(setting.type), ("text", str))
    try:
        return read(value.strip())
    except ValueError:
        raise ConfigError(f"{name}={value!r}: must be {kind}") from None


def _named_parts(loader: PluginLoader, name: str, value: Any, names: Mapping[str, str]) -> Any:
    """Names as they are; of a class or an import path the object."""
    given = (
        value.split(",")
        if isinstance(value, str)
        else [value]
        if isinstance(value, type)
        else value
    )
    if not isinstance(given, Iterable):
        return value
    stripped = [item.strip() if isinstance(item, str) else item for item in given]
    mapped = [names.get(item, item) if isinstance(item, str) else item for item in stripped]
    return [
        item if isinstance(item, str) and "." not in item else loader.one(name, item)
        for item in mapped
        if item != ""
    ]


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


#: How text becomes a value, by the type of the field: its name for errors, and the function.
_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bool": ("true or false", _switch),
    "int": ("a whole number", int),
    "int | None": ("a whole number", int),
    "float": ("a number", float),
}
