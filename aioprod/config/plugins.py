"""Creates, configures and closes plug-ins: serializers, partitioners, interceptors and so on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from aioprod.errors import ConfigError
from aioprod.foreign_text import repr_of
from aioprod.logs import Logger, get_logger
from aioprod.one_argument import OfData
from aioprod.user_code import ENDS_PROGRAM, surface

logger: Logger = get_logger(__name__)

_KAFKA = "org.apache.kafka."
# Further Java classes with an equivalent, and its import path.
_JAVA_CLASSES = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": (
        "aioprod.producer.partitioner.RoundRobinPartitioner"
    ),
}


class PluginLoader:
    """Creates plug-ins, in order to configure them later, or to close them if the client can't be
    created.
    """

    def __init__(self) -> None:
        self.made: list[tuple[str, Any]] = []

    def load(self, setting: str, given: Any) -> Any:
        """Return the object for a setting.

        Args:
            setting: the name of the setting.
            given: an object, a class that can be called without arguments, or the import path of
                either.

        Raises:
            ConfigError: if importing or instantiating it fails.
        """
        if isinstance(given, str):
            given = import_object(setting, given.strip()) if given.strip() else None
        if not isinstance(given, type):
            return given
        try:
            plugin = given()
        except ENDS_PROGRAM:
            raise
        except BaseException as error:
            raise ConfigError(
                f"{setting}: {given.__qualname__}() failed: {repr_of(error)}"
            ) from error
        self.made.append((setting, plugin))
        return plugin

    def load_all(self, setting: str, given: Any) -> Any:
        """Return the objects for a list, or for import paths separated by commas."""
        if isinstance(given, str):
            given = [path for path in given.split(",") if path.strip()]
        if isinstance(given, type):
            given = [given]
        if not isinstance(given, Iterable):
            return given
        return [self.load(setting, item) for item in given]

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Call ``configure`` of each created object that has this method.

        Raises:
            ConfigError: if one fails.
        """
        for setting, plugin in self.made:
            method = getattr(plugin, "configure", None)
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
                    f"{setting}: configure of {type(plugin).__qualname__} failed: {repr_of(error)}"
                ) from error

    def close(self) -> None:
        """Close the created objects."""
        close_plugins(plugin for _, plugin in reversed(self.made))


def import_object(setting: str, path: str, *, is_secret: bool = False) -> Any:
    """Import ``package.module.Name``. For the name of a Java class, return the equivalent.

    Args:
        setting: the name of the setting, for the error.
        path: the import path.
        is_secret: True if the text may be a secret, such as a token, and must not be in the error.

    Raises:
        ConfigError: if the module or name does not exist, or the import fails.
    """
    shown = setting if is_secret else f"{setting}={path!r}"
    if path.startswith(_KAFKA):
        from aioprod.config.java_serializers import JAVA_CLASSES

        if path in JAVA_CLASSES:
            return JAVA_CLASSES[path]
    module_name, _, name = _JAVA_CLASSES.get(path, path).rpartition(".")
    if path.startswith(_KAFKA) and path not in _JAVA_CLASSES:
        raise ConfigError(f"{shown}: aioprod has no equivalent of this Java class")
    if is_secret and not _is_module(module_name):
        raise ConfigError(
            f"{setting}: module not found; must be an import path such as package.module.name"
        )
    if not module_name:
        raise ConfigError(f"{shown}: must be an import path such as package.module.Name")
    try:
        return getattr(import_module(module_name), name)
    except AttributeError:
        missing = "such name" if is_secret else name
        raise ConfigError(f"{shown}: module {module_name} has no {missing}") from None
    except ENDS_PROGRAM:
        raise
    except BaseException as error:
        raise ConfigError(f"{shown}: importing {module_name} failed: {repr_of(error)}") from error


def _is_module(name: str) -> bool:
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as error:
        # The module may exist, but import one that does not.
        return error.name is None or not f"{name}.".startswith(f"{error.name}.")
    except ENDS_PROGRAM:
        raise
    except BaseException:
        return True  # importing it raises the reason


def close_plugins(plugins: Iterable[object]) -> None:
    """Call ``close`` of each plug-in that has this method, once, and log errors.

    KeyboardInterrupt and SystemExit are raised afterwards by the event loop, or here if no loop is
    running.
    """
    closed: set[int] = set()
    errors: list[BaseException] = []
    for plugin in plugins:
        plugin = plugin.function if isinstance(plugin, OfData) else plugin
        method = getattr(plugin, "close", None)
        if not callable(method) or id(plugin) in closed:
            continue
        closed.add(id(plugin))
        try:
            method()
        except BaseException as error:
            logger.warning("close of %s failed", type(plugin).__qualname__, exc_info=error)
            errors.append(error)
    for raised in errors:
        surface(raised)
