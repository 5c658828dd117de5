"""The user's own objects in a client (serializers, partitioner, interceptors ...): from class or
path to object, configured, closed.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from aioprod.errors import ConfigError
from aioprod.serialization import JAVA_DESERIALIZERS, JAVA_SERIALIZERS
from aioprod.user_code import ENDS_PROGRAM, surface

logger = logging.getLogger(__name__)

# Java's other classes that have a counterpart here, by the path that a user would write.
_JAVA_CLASSES = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": (
        "aioprod.producer.partitioner.RoundRobinPartitioner"
    ),
}


class PluginLoader:
    """Makes parts, and remembers those it made itself: these are configured, and closed again if
    making the client fails.
    """

    def __init__(self) -> None:
        self.made: list[tuple[str, Any]] = []

    def one(self, setting: str, given: Any) -> Any:
        """The object for a setting: of a class one is made, of an import path too unless it leads
        to an object; others are used as they are.

        Raises:
            ConfigError: the path leads nowhere, or the class can't be made without arguments.
        """
        if isinstance(given, str):
            given = import_object(setting, given.strip()) if given.strip() else None
        if not isinstance(given, type):
            return given
        try:
            part = given()
        except ENDS_PROGRAM:
            raise
        except BaseException as error:
            raise ConfigError(f"{setting}: {given.__qualname__}() failed: {error!r}") from error
        self.made.append((setting, part))
        return part

    def many(self, setting: str, given: Any) -> Any:
        """The same for a list, or for text with commas."""
        if isinstance(given, str):
            given = [path for path in given.split(",") if path.strip()]
        if isinstance(given, type):
            given = [given]
        if not isinstance(given, Iterable):
            return given
        return [self.one(setting, item) for item in given]

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Call ``configure`` of each object that was made here and has it.

        Raises:
            ConfigError: one of them failed.
        """
        for setting, part in self.made:
            method = getattr(part, "configure", None)
            if method is None:
                continue
            try:
                if setting.endswith("serializer"):
                    method(settings, setting.startswith("key_"))
                else:
                    method(settings)
            except ENDS_PROGRAM:
                raise
            except BaseException as error:
                raise ConfigError(
                    f"{setting}: configure of {type(part).__qualname__} failed: {error!r}"
                ) from error

    def close(self) -> None:
        """Close what was made here."""
        close_plugins(part for _, part in reversed(self.made))


def import_object(setting: str, path: str, *, is_secret: bool = False) -> Any:
    """What an import path such as ``package.module.Name`` leads to; names of Java's own classes
    lead to ours.

    Args:
        is_secret: keep a path that leads nowhere out of the error: it may be a token.

    Raises:
        ConfigError: there is no such module or name, or importing it fails.
    """
    shown = setting if is_secret else f"{setting}={path!r}"
    own = JAVA_SERIALIZERS.get(path) or JAVA_DESERIALIZERS.get(path)
    if own is not None:
        return own
    module_name, _, name = _JAVA_CLASSES.get(path, path).rpartition(".")
    if path.startswith("org.apache.kafka.") and path not in _JAVA_CLASSES:
        raise ConfigError(f"{shown}: a class of Java's that has no counterpart in aioprod")
    if is_secret and not _is_module(module_name):
        raise ConfigError(
            f"{setting}: leads to no module; must be an import path such as package.module.name"
        )
    if not module_name:
        raise ConfigError(f"{shown}: must be an import path such as package.module.Name")
    try:
        return getattr(importlib.import_module(module_name), name)
    except AttributeError:
        missing = "such name" if is_secret else name
        raise ConfigError(f"{shown}: module {module_name} has no {missing}") from None
    except ENDS_PROGRAM:
        raise
    except BaseException as error:
        raise ConfigError(f"{shown}: importing {module_name} failed: {error!r}") from error


def _is_module(name: str) -> bool:
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        # A module that is there may need one that is not.
        return error.name is None or not f"{name}.".startswith(f"{error.name}.")
    except ENDS_PROGRAM:
        raise
    except BaseException:
        return True  # importing it says why


def close_plugins(parts: Iterable[object]) -> None:
    """Call ``close`` of each part that has it, once, and log what it raises.

    KeyboardInterrupt and SystemExit are then raised by the event loop, or here if none runs.
    """
    closed: set[int] = set()
    errors: list[BaseException] = []
    for part in parts:
        method = getattr(part, "close", None)
        if not callable(method) or id(part) in closed:
            continue
        closed.add(id(part))
        try:
            method()
        except BaseException as error:
            logger.warning("close of %s failed", type(part).__qualname__, exc_info=error)
            errors.append(error)
    for raised in errors:
        surface(raised)
