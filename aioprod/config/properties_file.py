"""Files of ``NAME=VALUE`` lines, as Kafka's tools read them for ``--command-config``."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from aioprod.config.redaction import is_secret
from aioprod.errors import ConfigError

log = logging.getLogger(__name__)


def read_settings(path: Path, option: str) -> dict[str, str]:
    """The settings in a file of lines ``NAME=VALUE``; ``#`` or ``!`` begins a comment.

    Args:
        path: of the file.
        option: of the command line that named it, for errors.

    Raises:
        ConfigError: the file can't be read, or a line is no setting.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"can't read {option} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {path} is no text in UTF-8") from None
    settings = {}
    for number, line in enumerate(lines, start=1):
        text = line.lstrip()
        if not text or text[0] in "#!":
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():  # the line is not shown: it may hold a password
            raise ConfigError(f"line {number} of {option} {path} is not NAME=VALUE")
        settings[name.strip()] = value.lstrip()  # a password may end with spaces
    return settings


def warn_of_secrets(names: Iterable[str], option: str, better: str) -> None:
    """Warn, in one line, of secrets that were given on the command line.

    Args:
        names: of the settings.
        option: that gave them.
        better: the option that names a file with them.
    """
    found = sorted(filter(is_secret, names))
    if found:
        log.warning(
            "%s %s: the process list shows it to all users of this machine; "
            "put it into a file for %s",
            option, ", ".join(found), better,
        )  # fmt: skip
