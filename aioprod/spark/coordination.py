"""Requests about transactions and groups of other clients, with retries within a limit. One client
and its connections serve a whole batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from aioprod.cluster.client import ClusterClient
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.cluster.retry import RetryLimit, is_retriable, retry
from aioprod.config.client import ClientConfig
from aioprod.config.redaction import SecretSettings
from aioprod.error_codes import COORDINATOR_MOVED, ErrorCode
from aioprod.errors import BrokerError, KafkaError, UnsupportedVersionError
from aioprod.logs import Logger, get_logger
from aioprod.net.backoff import Backoff
from aioprod.net.bounds import TimeLimit
from aioprod.net.connection import Connection
from aioprod.protocol.message import Message, Request
from aioprod.spark.errors import SinkError
from aioprod.spark.starting import start_patiently
from aioprod.spark.waiting import named_wait

ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")

log: Logger = get_logger(__name__)

_CLIENT_FIELDS = frozenset(item.name for item in fields(ClientConfig)) - {"bootstrap_servers"}
_DEFAULT_LIMIT_MS = 60_000  # of max.block.ms


@dataclass(frozen=True, slots=True)
class Coordination:
    """A started client, and the time limit of its calls.

    Attributes:
        limit_s: the limit of each call including its retries, from the setting ``max.block.ms``.
    """

    client: ClusterClient
    limit_s: float

    async def ask(
        self,
        kind: CoordinatorType,
        key: str,
        prepare: Callable[[Connection], tuple[Request[ResponseT], int]],
        code_of: Callable[[ResponseT], ErrorCode],
    ) -> ResponseT:
        """Return a coordinator's first response whose error code is not retriable, within
        ``limit_s``.

        Raises:
            KafkaError: if there was none within the limit: the last response's error, or
                KafkaTimeoutError.
        """
        coordinators = self.client.coordinators

        async def attempt() -> ResponseT:
            reply = await coordinators.request(kind, key, prepare)
            code = code_of(reply)
            if not code.retriable:
                return reply
            if code in COORDINATOR_MOVED:
                coordinators.forget(kind, key)
            raise BrokerError(code, f"{kind.name.lower()} {key!r}")

        what = f"asking the coordinator of {kind.name.lower()} {key!r}"
        return await self.retry(attempt, what)

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        what: str,
        is_retriable: Callable[[KafkaError], bool] = is_retriable,
        limit_s: float | None = None,
    ) -> T:
        """Retry until an attempt succeeds, within ``limit_s`` (default: the limit of all calls).

        Raises:
            KafkaError: the last error, or KafkaTimeoutError with ``what`` in its message.
        """
        config = self.client.config
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.Random())
        limit = (
            RetryLimit(self.limit_s * 1000, what, "kafka.max.block.ms")
            if limit_s is None
            else RetryLimit(limit_s * 1000, what, "its limit")
        )
        with named_wait(what, f"{limit.setting}, {limit.limit_ms:g} ms"):
            return await retry(
                attempt,
                # Usually the coordinator is ready soon: the first pauses are a tenth of the
                # backoff.
                lambda failures: backoff.seconds(failures) * min(1.0, 0.1 * failures),
                is_retriable=is_retriable,
                limit=limit,
            )

    async def find_coordinators(
        self, keys: Collection[str], kind: CoordinatorType = CoordinatorType.TRANSACTION
    ) -> None:
        """Find the coordinators of all transactions or groups with one request within ``limit_s``.
        If it fails, each is looked up separately later.
        """
        try:
            what, setting = "looking for coordinators", "kafka.max.block.ms"
            with named_wait(what, setting):
                async with TimeLimit(self.limit_s * 1000, what, setting):
                    await self.client.coordinators.nodes(kind, keys)
        except KafkaError as error:
            log.debug("coordinators are looked for one by one: %s", error)


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all coroutines concurrently. The first failure cancels the others, and is raised
    unchanged.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


class CoordinationClient:
    """A client with those settings of a producer that all clients share. It connects when it is
    first used.
    """

    def __init__(self, producer_settings: Mapping[str, Any], client_id: str) -> None:
        settings = SecretSettings(
            {name: value for name, value in producer_settings.items() if name in _CLIENT_FIELDS}
        )
        self._client = ClusterClient(
            producer_settings["bootstrap_servers"], **settings | {"client_id": client_id}
        )
        self._limit_s = producer_settings.get("max_block_ms", _DEFAULT_LIMIT_MS) / 1000
        self._started = False

    async def connected(self) -> Coordination:
        """Connect if it is not connected, within `max_block_ms`.

        Raises:
            KafkaError: if no broker can be reached, or all brokers refuse this client.
        """
        if not self._started:
            await start_patiently(
                self._client.start, self._client.config, self._limit_s, "kafka.max.block.ms"
            )
            self._started = True
        return Coordination(self._client, self._limit_s)

    async def close(self) -> None:
        """Close all connections, within 2 seconds."""
        await self._client.close()


def _is_unsupported(error: BaseException | None) -> bool:
    return isinstance(error, UnsupportedVersionError) or (
        isinstance(error, BrokerError) and error.code == ErrorCode.UNSUPPORTED_VERSION
    )


@contextlib.contextmanager
def old_brokers_explained() -> Iterator[None]:
    """Explain the error if brokers are too old for exactly-once, or do not support transactions.

    Raises:
        SinkError: instead of UnsupportedVersionError, or of the producer's error for it.
    """
    try:
        yield
    except KafkaError as error:
        # The error of a row has the reason as its cause.
        if not (_is_unsupported(error) or _is_unsupported(error.__cause__)):
            raise
        raise SinkError(
            "delivery=exactly-once needs brokers of Kafka 3.0 or newer; use "
            f"delivery=at-least-once ({error})"
        ) from error


@contextlib.asynccontextmanager
async def open_coordination(
    producer_settings: Mapping[str, Any], client_id: str, *others: Coroutine[Any, Any, None]
) -> AsyncIterator[Coordination]:
    """Connect with those settings of a producer that all clients share; run ``others`` at the same
    time.

    Connecting ends within `max_block_ms`.

    Raises:
        SinkError: if the brokers are too old for exactly-once.
        KafkaError: if no broker can be reached, or all brokers refuse this client.
    """
    client = CoordinationClient(producer_settings, client_id)
    try:
        with old_brokers_explained():
            coordination: list[Coordination] = []

            async def connect() -> None:
                coordination.append(await client.connected())

            await together([connect(), *others])
            yield coordination[0]
    finally:
        await client.close()
