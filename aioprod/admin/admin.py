"""The admin client that users see."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, Self, Unpack, cast

from aioprod.admin.cluster import ClusterCalls
from aioprod.admin.configs import ConfigCalls
from aioprod.admin.driver import AdminDriver
from aioprod.admin.groups import GroupCalls
from aioprod.admin.offsets import OffsetCalls
from aioprod.admin.quotas import QuotaCalls
from aioprod.admin.records import RecordCalls
from aioprod.admin.replicas import ReplicaCalls
from aioprod.admin.topics import TopicCalls
from aioprod.admin.transactions import TransactionCalls
from aioprod.arguments import check_sources
from aioprod.cluster.client_ids import next_client_number
from aioprod.config.admin import ADMIN, AdminConfig, AdminSettings
from aioprod.config.checks import check_names
from aioprod.config.kafka_properties import client_arguments
from aioprod.config.redaction import hide_arguments


class Admin(
    TopicCalls,
    ConfigCalls,
    GroupCalls,
    OffsetCalls,
    RecordCalls,
    ClusterCalls,
    TransactionCalls,
    ReplicaCalls,
    QuotaCalls,
):
    """Looks at a cluster and changes it: topics, settings, groups and their offsets, records,
    transactions, replicas, quotas.

    Make it anywhere (the constructor touches no event loop), use it in one event loop, share it
    between any number of tasks.

    Calls about one thing raise its error. Calls about several give :class:`aioprod.admin.Results`:
    each item has its own result or error. What may pass (a moved controller, coordinator or leader,
    a lost connection, a quota) is tried again until ``timeout_ms``, by default
    ``default_api_timeout_ms``; then the error is a :class:`aioprod.KafkaTimeoutError` that names
    the last reason.

    Args:
        bootstrap_servers: ``"host:port,host:port"`` or a list of these.
        rng: source of all random choices (jitter, order of brokers).
        settings: the fields of :class:`aioprod.admin.AdminConfig`; docs/admin.md explains each.

    Raises:
        ConfigError: a setting is unknown or has a bad value.
    """

    @hide_arguments
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        rng: random.Random | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        check_names(AdminConfig, settings)
        check_sources(None, rng)
        settings.setdefault("client_id", _client_id())
        self.config = AdminConfig(
            bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers), **settings
        )
        self._driver = AdminDriver(self.config, rng or random.Random())

    @classmethod
    @hide_arguments
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """Make an admin client from Kafka's own names and values, such as ``{"bootstrap.servers":
        "...", "request.timeout.ms": "5000"}``.

        Raises:
            ConfigError: as the constructor does; and for a setting of Java's that is not there,
                which says why.
        """
        with client_arguments(ADMIN, settings, lambda given: _client_id()) as arguments:
            return cls(**arguments)

    async def start(self) -> None:
        """Connect and learn the brokers, within ``default_api_timeout_ms``.

        After a failure it may be called again.

        Raises:
            BrokerConnectionError: no bootstrap address answers; the message names each and why.
            KafkaTimeoutError: the limit has passed: a server takes connections, and does not say
                which brokers there are.
            AuthenticationError: the broker refuses the credentials.
            AdminClosedError: it was closed before, or meanwhile.
            WrongEventLoopError: it was started in another event loop, or before this process was
                forked.
        """
        await self._driver.start()

    def __del__(self) -> None:
        driver: AdminDriver | None = self.__dict__.get("_driver")  # None: the settings were refused
        if driver is not None and not driver.released:
            driver.home.forgotten(self, "", driver.abandon)

    async def stop(self) -> None:
        """The same as :meth:`close`."""
        await self.close()

    async def close(self) -> None:
        """Close all connections, within 2 seconds. Closing twice is fine.

        Calls that are under way in other tasks fail with AdminClosedError.
        """
        await self._driver.close()

    async def __aenter__(self) -> Self:
        """As :meth:`start`."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """As :meth:`close`."""
        await self.close()


def _client_id() -> str:
    return f"aioprod-admin-{next_client_number('admin')}"
