"""The keyword arguments of the embedded cluster, for type checkers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypedDict

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
