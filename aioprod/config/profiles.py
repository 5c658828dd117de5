"""Default connection settings: profiles in the user's configuration file, and environment
variables.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import fields
from pathlib import Path
from typing import Any

from aioprod.config.client import ClientConfig
from aioprod.config.kafka_properties import python_settings
from aioprod.config.properties_file import read_properties
from aioprod.config.redaction import hide_arguments, is_secret
from aioprod.config.setting import SettingsTable
from aioprod.config.settings.admin import ADMIN_SETTINGS
from aioprod.config.unsupported import ADMIN_UNSUPPORTED
from aioprod.errors import ConfigError
from aioprod.foreign_text import nearest
from aioprod.logs import Logger, get_logger

SERVERS_VARIABLE = "AIOPROD_BOOTSTRAP_SERVERS"
PROFILE_VARIABLE = "AIOPROD_PROFILE"
DEFAULT_PROFILE = "default"

_SERVERS = "bootstrap.servers"
_HEADING = re.compile(r"\[([A-Za-z0-9._-]+)\]")
_OTHERS_MAY_READ = stat.S_IRWXG | stat.S_IRWXO

log: Logger = get_logger(__name__)


def client_table() -> SettingsTable:
    """Return the settings that all clients have."""
    names = [each.name for each in fields(ClientConfig)]
    common = {name: ADMIN_SETTINGS[name] for name in names if name in ADMIN_SETTINGS}
    return SettingsTable(ClientConfig, "client", common, ADMIN_UNSUPPORTED)


@hide_arguments
def connection_settings(profile: str | None = None) -> dict[str, Any]:
    """Return the default connection arguments, as the command line uses them:
    ``bootstrap_servers``, and security settings if there are any.

        >>> Producer(**connection_settings(), linger_ms=20)  # doctest: +SKIP

    If ``profile`` is given, its settings are used. Otherwise, the environment variable
    ``AIOPROD_PROFILE`` names the profile, and ``AIOPROD_BOOTSTRAP_SERVERS`` replaces its servers.
    Without these variables, the profile ``default`` is used, if it exists. The servers default to
    ``localhost:9092``.

    Raises:
        ConfigError: if the profile does not exist, the file is invalid, or a setting is not common
            to all clients.
    """
    settings = {_SERVERS: "localhost:9092", **_chosen(profile)}
    try:
        return python_settings(client_table(), settings)
    except ConfigError as error:
        raise ConfigError(
            f"{profiles_path()}: {error} (a profile may only contain settings of all clients)"
        ) from None


def _chosen(profile: str | None) -> dict[str, str]:
    name = profile or os.environ.get(PROFILE_VARIABLE)
    servers = os.environ.get(SERVERS_VARIABLE) if profile is None else None
    if name:
        settings = _profile(name)
    elif servers or not profiles_path().is_file():
        settings = {}
    else:
        settings = _profiles().get(DEFAULT_PROFILE, {})
        _check_mode(settings)
    return {**settings, _SERVERS: servers} if servers else settings


def profiles_path() -> Path:
    """Return the path of the user's profiles."""
    if os.name == "nt":
        base = Path(os.environ.get("APPDATA") or Path.home())
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "aioprod" / "profiles.properties"


def profile_names() -> list[str]:
    """Return the names of all profiles; none if there is no file.

    Raises:
        ConfigError: if the file is invalid.
    """
    return list(_profiles()) if profiles_path().is_file() else []


def _profile(name: str) -> dict[str, str]:
    path = profiles_path()
    if not path.exists():
        raise ConfigError(f"profile {name!r}: there is no file {path}")
    profiles = _profiles()
    if name not in profiles:
        near = nearest(name, profiles)
        hint = f"did you mean {near!r}? " if near else ""
        known = ", ".join(profiles) or "none"
        raise ConfigError(f"profile {name!r} is not in {path}; {hint}(known: {known})")
    _check_mode(profiles[name])
    return profiles[name]


def _profiles() -> dict[str, dict[str, str]]:
    """Read the file: properties below headings such as ``[production]``."""
    path = profiles_path()
    profiles: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    for found in read_properties(path, "the profiles", _HEADING):
        heading = _HEADING.fullmatch(found.name)
        where = f"line {found.line} of the profiles {path}"
        if heading is not None and not found.value:
            if heading[1] in profiles:
                raise ConfigError(f"{where}: profile {heading[1]!r} occurs twice")
            current = profiles[heading[1]] = {}
        elif found.name.startswith("["):
            raise ConfigError(
                f"{where}: the heading of a profile must consist of letters, digits, '.', '_' and "
                "'-', such as [production]"
            )
        elif current is None:
            raise ConfigError(f"{where}: settings must follow a heading such as [production]")
        else:
            current[found.name] = found.value
    return profiles


def _check_mode(settings: dict[str, str]) -> None:
    """Log a warning if other users can read the secrets of a profile."""
    path = profiles_path()
    if os.name != "nt" and any(map(is_secret, settings)) and path.stat().st_mode & _OTHERS_MAY_READ:
        log.warning(
            "%s contains passwords, and other users of this machine can read it: chmod 600 %s",
            path, path,
        )  # fmt: skip
