"""Gets the producer id of an idempotent producer without transactions, from any broker (KIP-98)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioprod.cluster.retry import is_retriable, retry
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerError,
    FatalProducerError,
    KafkaError,
    UnsupportedVersionError,
)
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import Brokers
from aioprod.net.connection import Connection
from aioprod.net.refusals import UNNAMED, explain
from aioprod.producer.batch import ProducerIdAndEpoch
from aioprod.producer.sequences import ProducerState
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioprod.running_loop import start_task

_CLOSE_TIMEOUT_S = 1.0


class ProducerIdRequest:
    """Asks for a producer id until a broker grants one, or refuses with a fatal error.

    Args:
        producer: gets the id.
        wake: called when the sender has to run.
        on_fatal: called with the error if no id can be granted.
        principal: the client's, for errors.

    Attributes:
        last_error: why the last attempt has failed.
    """

    def __init__(
        self,
        brokers: Brokers,
        producer: ProducerState,
        backoff: Backoff,
        *,
        wake: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
        principal: str = UNNAMED,
    ) -> None:
        self.last_error: KafkaError | None = None
        self._task: asyncio.Task[None] | None = None
        self._on_fatal = on_fatal
        self._brokers = brokers
        self._producer = producer
        self._backoff = backoff
        self._wake = wake
        self._principal = principal
        self._unable: set[str] = set()

    def start(self) -> None:
        """Start the task that asks, unless it is running."""
        if self._task is None or self._task.done():
            self._task = start_task(self._ask(), name="aioprod-producer-id")
            self._task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Ask no more."""
        # Once: a second cancellation would interrupt the cleanup after the first.
        if self._task is not None and not self._task.cancelling():
            self._task.cancel()

    async def close(self) -> None:
        """Stop, and wait until the task has ended."""
        self.stop()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_TIMEOUT_S)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._on_fatal(KafkaError(f"requesting a producer id failed: {task.exception()!r}"))
        self._wake()

    async def _ask(self) -> None:
        try:
            await retry(
                self._attempt,
                self._backoff.seconds,
                is_retriable=is_retriable,
                on_failure=self._note,
            )
        except KafkaError as error:
            self._on_fatal(error)

    async def _attempt(self) -> None:
        reply = await self._brokers.ask_any(_ask_for_id, self._unable)
        code = ErrorCode.of(reply.error_code)
        if code == ErrorCode.NONE:
            self._producer.adopt(ProducerIdAndEpoch((reply.producer_id, reply.producer_epoch)))
        else:
            error = FatalProducerError(
                code,
                "no producer id was granted; grant WRITE on a topic or IDEMPOTENT_WRITE on the "
                "cluster, or set enable_idempotence=False",
            )
            raise explain(error, "InitProducerId", self._principal)

    def _note(self, error: KafkaError, failures: int) -> None:
        self.last_error = error


async def _ask_for_id(connection: Connection) -> InitProducerIdResponse:
    try:
        version = connection.pick_version(InitProducerIdRequest)
    except UnsupportedVersionError as error:
        # Some services have no idempotent producers.
        raise UnsupportedVersionError(f"{error}: set enable_idempotence=False") from error
    reply = await connection.request(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        version=version,
    )
    code = ErrorCode.of(reply.error_code)
    if code.retriable:
        raise BrokerError(code, "InitProducerId")  # so that another broker is asked next
    return reply
