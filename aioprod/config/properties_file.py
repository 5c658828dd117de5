"""Reads files of settings, as Kafka's tools do for ``--command-config``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from aioprod.config.java_properties import (
    PropertiesError,
    Property,
    decode_properties,
    parse_properties,
)
from aioprod.config.redaction import is_secret
from aioprod.errors import ConfigError
from aioprod.logs import Logger, get_logger

_NAME = re.compile(r"[a-z0-9]+([._][a-z0-9]+)*")

log: Logger = get_logger(__name__)


def read_settings(path: Path, option: str) -> dict[str, str]:
    r"""Read a properties file as Kafka's tools do: names and values separated by ``=``, ``:`` or
    blanks, comments with ``#`` or ``!``, lines that a backslash continues, escapes such as
    ``\u00e9``. If a name is given several times, the last value counts.

    Args:
        path: the path of the file.
        option: the command-line option that names the file, for errors.

    Raises:
        ConfigError: if the file can't be read, or a line is not a setting.
    """
    return {found.name: found.value for found in read_properties(path, option)}


def read_properties(
    path: Path, option: str, heading: re.Pattern[str] | None = None
) -> list[Property]:
    """Yield the properties in a file, in the format of :func:`read_settings`.

    Args:
        path: the path of the file.
        option: the option that names the file, for errors.
        heading: pattern of headings, which are lines without a value.

    Raises:
        ConfigError: if the file can't be read, or a line is invalid.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"can't read {option} {path}: {error.strerror}") from None
    found: list[Property] = []
    try:
        for each in parse_properties(decode_properties(data)):
            is_heading = heading is not None and heading.fullmatch(each.name) and not each.value
            if not (is_heading or _may_be_name(each)):  # not shown, as it may be a password
                raise PropertiesError(each.line, "it is not NAME=VALUE")
            found.append(each)
    except PropertiesError as error:
        fault = f"line {error.line} of {option} {path}: {error}"
    else:
        return found
    finally:
        del data
    raise ConfigError(fault)


def _may_be_name(found: Property) -> bool:
    """Return whether the beginning of a line may be the name of a setting. A line without ``=`` may
    be a password, or the continuation of a line without a backslash at its end.
    """
    if found.separator == "=" or not found.name:
        return bool(found.name)
    return bool(_NAME.fullmatch(found.name)) and bool(found.value or "." in found.name)


def warn_of_secrets(names: Iterable[str], option: str, better: str) -> None:
    """Log a warning if secrets are given on the command line.

    Args:
        names: the names of the settings.
        option: the option that contains them.
        better: the option that names a file instead.
    """
    found = sorted(filter(is_secret, names))
    if found:
        log.warning(
            "%s %s: all users of this machine can see it in the process list; "
            "use a file with %s",
            option, ", ".join(found), better,
        )  # fmt: skip
