"""Sends requests to the coordinators of consumer groups and transactional ids. A coordinator is
looked up on demand, and again after it has moved.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from enum import IntEnum
from functools import partial
from typing import TypeVar

from aioprod.cluster.retry import is_retriable, retry
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AuthenticationError,
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aioprod.foreign_text import reason_of
from aioprod.logs import LOG_AGAIN_S, LastingProblem, Logger, get_logger
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.net.connection import Connection
from aioprod.net.race import result_of
from aioprod.net.refusals import explain, principal_of
from aioprod.net.silence import SILENCE_S
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.running_loop import start_task

log: Logger = get_logger(__name__)

_SEVERAL_KEYS_FROM = 4
_TRANSACTIONS_FROM = 1

ResponseT = TypeVar("ResponseT", bound=Message)


class CoordinatorType(IntEnum):
    """The types of coordinators, with the numbers of the protocol."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """Sends requests to coordinators.

    Args:
        config: the timeouts and the backoff.
        brokers: the connections.
        rng: source of jitter.

    Attributes:
        trouble: why the last attempt to reach a coordinator failed; None if it succeeded.
    """

    def __init__(self, config: ClientConfig, brokers: Brokers, rng: random.Random) -> None:
        self._config = config
        self._brokers = brokers
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._known: dict[tuple[CoordinatorType, str], BrokerAddress] = {}
        # Brokers that could not name it, or named themselves and were not: others are asked first.
        self._unable: dict[tuple[CoordinatorType, str], set[str]] = {}
        self.trouble: KafkaError | None = None
        self._problems: dict[tuple[CoordinatorType, str], LastingProblem] = {}

    def forget(self, kind: CoordinatorType, key: str) -> None:
        """Forget a coordinator that has moved: the next request looks it up again."""
        node = self._known.pop((kind, key), None)
        if node is not None:
            self._unable.setdefault((kind, key), set()).add(node.address)

    async def request(
        self,
        kind: CoordinatorType,
        key: str,
        prepare: Callable[[Connection], tuple[Request[ResponseT], int]],
        timeout_ms: float | None = None,
    ) -> ResponseT:
        """Send one request to a coordinator and return its response, with any error code. An
        unknown coordinator is looked up first.

        Args:
            kind: the kind of coordinator.
            key: the group id or transactional id.
            prepare: returns the message and its version for the connection; called right before the
                request is sent.
            timeout_ms: limit on the wait for the response; ``request_timeout_ms`` if None.

        Raises:
            BrokerConnectionError, RequestTimedOutError, ProtocolError: if there is no usable
                response. The next request looks up the coordinator again.
            BrokerError: if a broker responds to the lookup with an error. Retriable errors are
                retried for ``request_timeout_ms`` first.
            UnsupportedVersionError: if the broker is too old.
            AuthenticationError: if the client or the broker can't authenticate the other side.
        """
        connection = await self.connection(kind, key)
        message, version = prepare(connection)
        try:
            return await self._answer(kind, key, connection, message, version, timeout_ms)
        except (BrokerConnectionError, RequestTimedOutError, ProtocolError):
            self.forget(kind, key)
            raise

    async def _answer(
        self,
        kind: CoordinatorType,
        key: str,
        connection: Connection,
        message: Request[ResponseT],
        version: int,
        timeout_ms: float | None,
    ) -> ResponseT:
        """Wait for the coordinator's response. Fail if it is silent, and other brokers name another
        coordinator.
        """
        asked = self._known.get((kind, key))
        waiting = start_task(
            connection.request(message, version=version, timeout_ms=timeout_ms),
            name="aioprod-coordinator-request",
        )
        looking: asyncio.Task[BrokerAddress] | None = None
        try:
            while True:
                both = [waiting] if looking is None else [waiting, looking]
                await asyncio.wait(both, timeout=SILENCE_S, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    return result_of(waiting)
                if looking is None and connection.silent:
                    looking = start_task(self._find(kind, key), name="aioprod-find-coordinator")
                elif looking is not None and looking.done():
                    found = not looking.cancelled() and looking.exception() is None
                    if found and looking.result() != asked:
                        raise BrokerConnectionError(
                            f"{connection.address}: no response, and another broker is now the "
                            f"coordinator of {kind.name.lower()} {key!r}"
                        )
                    looking = None
        finally:
            waiting.cancel()
            if looking is not None:
                looking.cancel()

    async def connection(self, kind: CoordinatorType, key: str) -> Connection:
        """Return a connection to the coordinator. If it can't be reached, it is looked up again,
        with backoff, for ``request_timeout_ms``.

        Raises:
            KafkaError: see :meth:`request`.
        """
        deadline = asyncio.get_running_loop().time() + self._config.request_timeout_ms / 1000

        async def connect() -> Connection:
            try:
                node = self._known.get((kind, key)) or await self._find(kind, key)
                connection = await self._brokers.connection(node.node_id)
            except KafkaError as error:
                if not isinstance(error, AuthenticationError | UnsupportedVersionError):
                    self.trouble = error
                    self.forget(kind, key)
                    self._log_problem(kind, key, error)
                raise
            self.trouble = None
            self._log_recovery(kind, key)
            return connection

        return await retry(
            connect, self._backoff.seconds, is_retriable=is_retriable, deadline=deadline
        )

    def _log_problem(self, kind: CoordinatorType, key: str, error: KafkaError) -> None:
        problem = self._problems.setdefault((kind, key), LastingProblem(every_s=LOG_AGAIN_S))
        now = asyncio.get_running_loop().time()
        if problem.lasts(now):
            log.warning(
                "%s: the coordinator of %s %r can't be reached for %.0f s: %s; retrying, logged "
                "once a minute",
                self._config.client_id,
                kind.name.lower(),
                key,
                problem.seconds(now),
                error,
            )

    def _log_recovery(self, kind: CoordinatorType, key: str) -> None:
        problem = self._problems.pop((kind, key), None)
        if problem is not None and problem.is_logged:
            log.info(
                "%s: the coordinator of %s %r can be reached again, after %.0f s",
                self._config.client_id,
                kind.name.lower(),
                key,
                problem.seconds(asyncio.get_running_loop().time()),
            )

    async def nodes(self, kind: CoordinatorType, keys: Collection[str]) -> dict[str, int]:
        """Return the node ids of coordinators. Unknown coordinators are looked up in a single
        request if the brokers support that (KIP-699).

        Raises:
            KafkaError: as for :meth:`request`, but without retries.
        """
        missing = [key for key in keys if (kind, key) not in self._known]
        if missing:
            found = await self._ask(kind, missing)
            for key, node in found.items():
                self._note(kind, key, node)
        return {key: self._known[kind, key].node_id for key in keys}

    async def _find(self, kind: CoordinatorType, key: str) -> BrokerAddress:
        unable = self._unable.setdefault((kind, key), set())
        node = (await self._ask(kind, [key], unable))[key]
        self._note(kind, key, node)
        log.debug("the coordinator of %s %r is broker %d at %s:%d", kind.name.lower(), key, *node)
        return node

    def _note(self, kind: CoordinatorType, key: str, node: BrokerAddress) -> None:
        self._brokers.learn(node)
        self._known[kind, key] = node
        self._unable.pop((kind, key), None)

    async def _ask(
        self, kind: CoordinatorType, keys: Collection[str], unable: set[str] | None = None
    ) -> dict[str, BrokerAddress]:
        try:
            return await self._brokers.ask_any(partial(_find_coordinators, kind, keys), unable)
        except BrokerError as error:
            explain(error, "FindCoordinator", principal_of(self._config))
            raise


async def _find_coordinators(
    kind: CoordinatorType, keys: Collection[str], connection: Connection
) -> dict[str, BrokerAddress]:
    version = connection.pick_version(FindCoordinatorRequest)
    if version < _TRANSACTIONS_FROM and kind is not CoordinatorType.GROUP:
        raise UnsupportedVersionError(
            f"{connection.address} is too old for transactions; they need Kafka 0.11"
        )
    if version < _SEVERAL_KEYS_FROM:
        return {key: await _find_coordinator(kind, key, connection, version) for key in keys}
    reply = await connection.request(
        FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys)), version=version
    )
    by_key = {found.key: found for found in reply.coordinators}
    nodes = {}
    for key in keys:
        if key not in by_key:
            raise ProtocolError(
                f"{connection.address}: the FindCoordinator response does not contain {key!r}"
            )
        found = by_key[key]
        _check(kind, key, found.error_code, found.error_message)
        nodes[key] = BrokerAddress(found.node_id, found.host, found.port)
    return nodes


async def _find_coordinator(
    kind: CoordinatorType, key: str, connection: Connection, version: int
) -> BrokerAddress:
    reply = await connection.request(
        FindCoordinatorRequest(key_type=kind, key=key), version=version
    )
    _check(kind, key, reply.error_code, reply.error_message)
    return BrokerAddress(reply.node_id, reply.host, reply.port)


def _check(kind: CoordinatorType, key: str, error_code: int, message: str | None) -> None:
    code = ErrorCode.of(error_code)
    if code != ErrorCode.NONE:
        reason = "" if message == code.description else reason_of(message)
        said = f" ({reason})" if reason else ""
        raise BrokerError(code, f"no coordinator of {kind.name.lower()} {key!r}{said}")
