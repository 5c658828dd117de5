"""The keyword arguments of the embedded cluster, for type checkers, and checks of their values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypedDict

from aioprod.errors import ConfigError
from aioprod.testing.broker.access.authorizer import Authorizer
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.security import BrokerSecurity


class ClusterSettings(TypedDict, total=False):
    """The arguments of :class:`EmbeddedCluster`."""

    nodes: int
    host: str
    port: int
    replication_factor: int | None
    num_partitions: int
    auto_create_topics: bool
    max_message_bytes: int
    max_memory_bytes: int
    wall_clock: Callable[[], float] | None
    random_source: random.Random | None
    transaction_version: int
    replica_lag_time_max_ms: int
    groups: GroupSettings | None
    security: BrokerSecurity | None
    authorizer: Authorizer | None
    client_metrics: bool
    imitate: str | Iterable[str]


def check_range(name: str, value: int, lowest: int, highest: int) -> None:
    """Raise ConfigError if an argument is out of range."""
    if not lowest <= value <= highest:
        raise ConfigError(f"{name}={value}: must be {lowest} to {highest}")


def check_at_least_one(**values: int) -> None:
    """Raise ConfigError if an argument is below 1."""
    for name, value in values.items():
        if value < 1:
            raise ConfigError(f"{name}={value}: must be at least 1")
