"""Files of ``NAME=VALUE`` lines, as Kafka's tools read them for ``--command-config``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from aioprod.config.redaction import is_secret
from aioprod.errors import ConfigError
from aioprod.logs import get_logger

log = get_logger(__name__)


def read_settings(path: Path, option: str) -> dict[str, str]:
    """Read a file of ``NAME=VALUE`` lines; ``#`` or ``!`` starts a comment.

    Args:
        path: the path of the file.
        option: the command-line option that names the file, for errors.

    Raises:
        ConfigError: if the file can't be read, or a line is not a setting.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"can't read {option} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {path} is not UTF-8 text") from None
    settings = {}
    for number, line in enumerate(lines, start=1):
        text = line.lstrip()
        if not text or text[0] in "#!":
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():  # not shown: it may contain a password
            raise ConfigError(f"line {number} of {option} {path} is not NAME=VALUE")
        settings[name.strip()] = value.lstrip()  # a password may end with spaces
    return settings


def warn_of_secrets(names: Iterable[str], option: str, better: str) -> None:
    """Log a warning if secrets are given on the command line.

    Args:
        names: the names of the settings.
        option: the option that contains them.
        better: the option that names a file.
    """
    found = sorted(filter(is_secret, names))
    if found:
        log.warning(
            "%s %s: all users of this machine can see it in the process list; "
            "use a file with %s",
            option, ", ".join(found), better,
        )  # fmt: skip
