"""The plugin's options: which cluster the fixtures use, and with which settings."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import pytest

EMBEDDED = "embedded"
REAL = "real"


class ChosenCluster(NamedTuple):
    """The cluster for the fixtures (``embedded``, ``real`` or the address of a running one), and
    the version of a real one.
    """

    kind: str
    version: str | None


def add_options(parser: pytest.Parser) -> None:
    """Add the options and the ini settings."""
    group = parser.getgroup("aioprod", "Kafka fixtures (aioprod)")
    group.addoption(
        "--kafka",
        metavar="embedded|real|HOST:PORT",
        help=(
            "the cluster for the Kafka fixtures: 'embedded' in this process, 'real' to start a "
            "real one, or the address of a running one (default: embedded)"
        ),
    )
    group.addoption(
        "--kafka-version", metavar="VERSION", help="the version of the broker with --kafka=real"
    )
    parser.addini("kafka", "see --kafka", default=EMBEDDED)
    parser.addini("kafka_version", "see --kafka-version", default="")
    parser.addini(
        "kafka_partitions", "number of partitions of the fixture kafka_topic", default="1"
    )
    parser.addini(
        "kafka_client_settings",
        (
            "settings of the fixtures' clients by Kafka's names, one per line "
            "(security.protocol=SSL); $NAME is taken from the environment"
        ),
        type="linelist",
        default=[],
    )


def chosen_cluster(config: pytest.Config) -> ChosenCluster:
    """Return the chosen cluster.

    Raises:
        pytest.UsageError: if an option is invalid.
    """
    kind: str = config.getoption("kafka") or config.getini("kafka")
    version: str | None = (
        config.getoption("kafka_version") or config.getini("kafka_version") or None
    )
    if kind not in (EMBEDDED, REAL):
        from aioprod.config.addresses import parse_servers
        from aioprod.errors import ConfigError

        try:
            if ":" not in kind:  # probably a misspelled word
                raise ConfigError("an address needs a port here")
            kind = ",".join(parse_servers(kind))
        except ConfigError as error:
            raise pytest.UsageError(
                f"--kafka={kind}: must be embedded, real or HOST:PORT: {error}"
            ) from None
    if version is not None and config.getoption("kafka_version") and kind != REAL:
        raise pytest.UsageError(
            "--kafka-version sets the version of a real broker: add --kafka=real"
        )
    return ChosenCluster(kind, version)


def topic_settings(config: pytest.Config) -> dict[str, Any]:
    """Return the arguments of ``create_topic`` for the fixture ``kafka_topic``."""
    text: str = config.getini("kafka_partitions")
    if not text.isdecimal() or int(text) < 1:
        raise pytest.UsageError(f"kafka_partitions = {text}: must be a whole number of at least 1")
    return {"num_partitions": int(text)}


def client_settings(config: pytest.Config) -> dict[str, Any]:
    """Return the arguments of ``Producer`` that the ini file sets."""
    from aioprod.config.producer import producer_arguments
    from aioprod.errors import ConfigError

    lines: list[str] = config.getini("kafka_client_settings")
    settings: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        name, equals, value = line.partition("=")
        if not equals:  # not shown: it may contain a password
            raise pytest.UsageError(f"kafka_client_settings: line {number} must be name=value")
        settings[name.strip()] = os.path.expandvars(value.strip())
    try:
        with producer_arguments(settings, lambda _: "") as arguments:
            return {
                name: value for name, value in arguments.items() if name != "client_id" or value
            }
    except ConfigError as error:
        raise pytest.UsageError(f"kafka_client_settings: {error}") from None
