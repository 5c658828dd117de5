"""Converts settings with Kafka's names and values, as in a Java properties file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aioprod.config.msk_iam import with_tokens
from aioprod.config.plugins import PluginLoader, import_object
from aioprod.config.setting import Setting, SettingsTable, Source
from aioprod.errors import ConfigError
from aioprod.foreign_text import nearest, shown


@contextmanager
def client_arguments(
    table: SettingsTable,
    settings: Mapping[str, Any],
    new_client_id: Callable[[Mapping[str, Any]], str],
) -> Iterator[dict[str, Any]]:
    """Convert settings with Kafka's names to keyword arguments of a client.

    Plug-ins that are classes or import paths are instantiated and configured. They are closed if
    the body of the ``with`` statement raises an exception.

    Args:
        table: the settings of the client.
        settings: settings such as ``{"bootstrap.servers": "...", "linger.ms": "5"}``. Names may
            contain dots or underscores, values may be strings.
        new_client_id: returns the client id for the other arguments if ``client.id`` is not set.

    Raises:
        ConfigError: if a name or value is invalid or not supported.
    """
    loader = PluginLoader()
    try:
        arguments = _parsed(table, settings, loader)
        if "client_id" not in arguments:
            arguments["client_id"] = new_client_id(arguments)
        config = table.kind(**arguments)
        loader.configure(
            {
                name: getattr(config, name)
                for name, setting in table.settings.items()
                if not setting.hidden
            }
        )
        yield arguments
    except BaseException:
        loader.close()
        raise


def python_settings(table: SettingsTable, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert settings with Kafka's names, without plug-ins, to keyword arguments.

    Raises:
        ConfigError: if a name is invalid or not supported, or a value has the wrong type.
    """
    return _parsed(table, settings, PluginLoader())


def _parsed(
    table: SettingsTable, settings: Mapping[str, Any], loader: PluginLoader
) -> dict[str, Any]:
    return {
        name: _value(loader, table.settings[name], value)
        for name, value in _by_python_name(table, settings).items()
    }


def _by_python_name(table: SettingsTable, settings: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(settings, Mapping):  # not shown, as it may contain a password
        raise ConfigError(
            f"settings of type {type(settings).__name__}: must be a mapping from names to values"
        )
    by_name: dict[str, Any] = {}
    for given, value in with_tokens(settings).items():
        if not isinstance(given, str):
            raise ConfigError(f"the name of a setting is {shown(given)}: must be a string")
        name = table.python_name(given)
        if name not in table.settings:
            raise _unknown(table, given)
        if name in by_name:
            raise ConfigError(f"{given} is set twice, with dots and with underscores")
        by_name[name] = value
    return by_name


def _unknown(table: SettingsTable, given: str) -> ConfigError:
    dotted = given.replace("_", ".")
    if dotted in table.unsupported:
        return ConfigError(
            f"setting {given!r} of the Java {table.client} is not supported: "
            f"{table.unsupported[dotted]}"
        )
    from aioprod.config.other_clients import reason_of_absence, renamed  # for errors only

    ours = renamed(given, table.settings)
    if not ours and (reason := reason_of_absence(given)):
        return ConfigError(f"unknown setting {given!r}: {reason}")
    near = table.settings[ours].dotted_name if ours else nearest(dotted, table.dotted_names)
    if not near:
        return ConfigError(f"unknown setting {given!r}; docs/configuration.md lists all")
    suggestion = near if "." in given else ours or near.replace(".", "_")
    return ConfigError(f"unknown setting {given!r}: did you mean {suggestion!r}?")


def _value(loader: PluginLoader, setting: Setting, value: Any) -> Any:
    match setting.source:
        case Source.PLUGIN:
            return loader.load(setting.name, value)
        case Source.PLUGINS:
            return loader.load_all(setting.name, value)
        case Source.NAMES_OR_PLUGINS:
            return _names_or_plugins(loader, setting, value)
        case Source.FUNCTION if isinstance(value, str):
            return import_object(setting.name, value.strip(), is_secret=True)
    return setting.parse(value) if isinstance(value, str) else value


def _names_or_plugins(loader: PluginLoader, setting: Setting, value: Any) -> Any:
    if isinstance(value, str):
        value = value.split(",")
    elif isinstance(value, type):
        value = [value]
    if not isinstance(value, Iterable):
        return value
    items = [item.strip() if isinstance(item, str) else item for item in value]
    loaded = []
    for item in items:
        if isinstance(item, str):
            item = setting.java_classes.get(item, item)
        if item == "":
            continue
        is_name = isinstance(item, str) and "." not in item
        loaded.append(item if is_name else loader.load(setting.name, item))
    return loaded
