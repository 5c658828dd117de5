"""The public admin client."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Self, Unpack, cast

from aioprod.admin.acls import AclCalls
from aioprod.admin.cluster import ClusterCalls
from aioprod.admin.configs import ConfigCalls
from aioprod.admin.driver import AdminDriver
from aioprod.admin.groups import GroupCalls
from aioprod.admin.offsets import OffsetCalls
from aioprod.admin.quotas import QuotaCalls
from aioprod.admin.records import RecordCalls
from aioprod.admin.replicas import ReplicaCalls
from aioprod.admin.share_groups import ShareGroupCalls
from aioprod.admin.tokens import TokenCalls
from aioprod.admin.topics import TopicCalls
from aioprod.admin.transactions import TransactionCalls
from aioprod.admin.users import UserCalls
from aioprod.arguments import check_sources
from aioprod.cluster.client_ids import next_client_number
from aioprod.cluster.telemetry import LAST_PUSH_MS
from aioprod.config import keywords
from aioprod.config.admin import ADMIN, AdminConfig
from aioprod.config.checks import check_names
from aioprod.config.redaction import hide_arguments
from aioprod.misuse import ADMIN_OF_OTHERS, names_cures
from aioprod.public_module import Uncopyable


@names_cures(ADMIN_OF_OTHERS)
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
    AclCalls,
    UserCalls,
    TokenCalls,
    ShareGroupCalls,
    Uncopyable,
):
    """Describes and changes a cluster: topics, settings, groups and their offsets, records,
    transactions, replicas, quotas, ACLs, users, delegation tokens.

    The constructor needs no event loop. Use the client in one event loop, from any number of tasks.

    A call about one item raises its error. A call about several items returns
    :class:`aioprod.admin.Results`, in which each item has its own result or error. Retriable errors
    (a moved controller, coordinator or leader, a lost connection, a quota) are retried for
    ``timeout_ms``, by default ``default_api_timeout_ms``. After that, the call fails with a
    :class:`aioprod.KafkaTimeoutError` that names the last error.

    Args:
        bootstrap_servers: ``"host:port,host:port"`` or a list of these.
        rng: source of randomness for jitter and the order of brokers.
        settings: the fields of :class:`aioprod.admin.AdminConfig`; docs/admin.md explains each.

    Raises:
        ConfigError: if a setting is unknown or its value is invalid.
    """

    @hide_arguments
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        rng: random.Random | None = None,
        **settings: Unpack[keywords.AdminSettings],
    ) -> None:
        check_names(AdminConfig, settings)
        check_sources(None, rng)
        if settings.get("client_id") is None:
            settings["client_id"] = _client_id()
        self.config: AdminConfig = AdminConfig(
            bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers), **settings
        )
        self._driver = AdminDriver(self.config, rng or random.Random())

    @classmethod
    @hide_arguments
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """Create an admin client from Kafka's names and values, such as ``{"bootstrap.servers":
        "...", "request.timeout.ms": "5000"}``.

        Raises:
            ConfigError: as in the constructor; and if a setting exists in Java only, with the
                reason.
        """
        from aioprod.config.kafka_properties import client_arguments  # most pass arguments

        with client_arguments(ADMIN, settings, lambda given: _client_id()) as arguments:
            return cls(**arguments)

    async def start(self) -> None:
        """Connect to the cluster, within ``default_api_timeout_ms``.

        A server that accepts a connection and then closes it is retried. After a failure, the
        method may be called again.

        Raises:
            BrokerConnectionError: if no bootstrap server responds; the message contains the reason
                for each server.
            KafkaTimeoutError: if a server accepts connections, but does not respond in time.
            AuthenticationError: if the broker refuses the credentials.
            AdminClosedError: if the client is closed, before or during the call.
            WrongEventLoopError: if the client was started in another event loop, or before this
                process was forked.
        """
        await self._driver.runtime.start(self._driver)

    def __del__(self) -> None:
        if "_driver" in self.__dict__:  # the settings were valid
            self._driver.runtime.dropped(self, self._driver)

    async def stop(self) -> None:
        """Close the client; see :meth:`close`."""
        await self.close()

    async def close(self) -> None:
        """Close all connections, within 2 seconds. May be called more than once.

        Calls in other tasks fail with AdminClosedError.
        """
        await self._driver.runtime.close(self._driver, LAST_PUSH_MS)

    async def client_instance_id(self, timeout_ms: float | None = None) -> uuid.UUID:
        """Return the id that identifies this client in the metrics that it pushes to brokers
        (KIP-714). Requires ``enable_metrics_push``. The timeout is ``request_timeout_ms`` by
        default. The errors are those of :meth:`aioprod.Producer.client_instance_id`, with
        AdminClosedError.
        """
        return await self._driver.runtime.client_instance_id(timeout_ms)

    async def __aenter__(self) -> Self:
        """Start, as :meth:`start` does."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close, as :meth:`close` does."""
        await self.close()


def _client_id() -> str:
    return f"aioprod-admin-{next_client_number('admin')}"
