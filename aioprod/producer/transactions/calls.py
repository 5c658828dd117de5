"""Sends a request to a coordinator until a reply is final."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from aioprod.cluster.coordinators import CoordinatorType
from aioprod.cluster.retry import retry
from aioprod.config.producer import ProducerConfig
from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    AuthenticationError,
    BrokerError,
    FatalProducerError,
    KafkaError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from aioprod.logs import Logger, get_logger
from aioprod.net.backoff import Backoff
from aioprod.net.refusals import explain, principal_of
from aioprod.producer.transactions.reply_actions import (
    CoordinatorApi,
    ReplyAction,
    action_of_code,
    action_of_reply,
)
from aioprod.producer.transactions.requests import Peer
from aioprod.protocol.message import Message, Request

log: Logger = get_logger(__name__)

# While the coordinator still ends the previous transaction, which takes milliseconds, the first
# partition does not wait for the whole backoff (KAFKA-5482). Java waits 20 ms each time.
_BEHIND_LAST_TRANSACTION = (0.002, 0.004, 0.008, 0.016, 0.02)

ResponseT = TypeVar("ResponseT", bound=Message)


class CoordinatorRequests(Protocol):
    """The methods used of :class:`aioprod.cluster.coordinators.Coordinators`."""

    @property
    def trouble(self) -> KafkaError | None:
        """The error of the last attempt to reach a coordinator; None if it succeeded."""

    async def request(
        self,
        kind: CoordinatorType,
        key: str,
        prepare: Callable[[Any], tuple[Request[ResponseT], int]],
        /,
    ) -> ResponseT:
        """Send one request and return its reply."""

    def forget(self, kind: CoordinatorType, key: str, /) -> None:
        """Find the coordinator again before the next request."""


@dataclass(frozen=True, slots=True)
class CoordinatorCall(Generic[ResponseT]):
    """A request, and how to read its reply.

    Attributes:
        prepare: makes the message for a connection; called right before each attempt is sent.
        codes: returns the error codes in a reply.
        hurry: whether to retry soon if the coordinator still ends the previous transaction.
        before: called before each attempt.
        topics: for each of the codes, the topic that it is about.
    """

    api: CoordinatorApi
    prepare: Callable[[Peer], tuple[Request[ResponseT], int]]
    codes: Callable[[ResponseT], Iterable[ErrorCode]]
    group_id: str | None = None
    hurry: bool = False
    before: Callable[[], Awaitable[None]] | None = None
    topics: Sequence[str] = ()


class Attempts:
    """The attempts to send one request. Other tasks can end them; an attempt in flight first waits
    for its reply.

    Attributes:
        task: the task that makes the attempts.
        last_error: why the latest attempt failed.
        coordinators: sends the request; None before the first attempt.
        count: the number of attempts that were sent.
    """

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.last_error: KafkaError | None = None
        self.coordinators: CoordinatorRequests | None = None
        self.count: int = 0
        self._in_flight = False
        self._stopping = False

    @property
    def trouble(self) -> KafkaError | None:
        """The reason why the request has not succeeded yet, if known. It may not have been sent."""
        return self.last_error or (
            self.coordinators.trouble if self.coordinators is not None else None
        )

    def run_by(self, task: asyncio.Task[None]) -> None:
        """Set the task that makes the attempts."""
        self.task = task

    def sent_to(self, coordinators: CoordinatorRequests) -> None:
        """Set the object that sends the attempts."""
        self.coordinators = coordinators

    def failed(self, error: KafkaError) -> None:
        """Note why an attempt failed."""
        self.last_error = error

    def stop(self) -> None:
        """End the task: at once, or after the reply for which it waits."""
        self._stopping = True
        if self.task is not None and not self._in_flight:
            self.task.cancel()

    def sent(self) -> None:
        """Note that an attempt is about to be sent."""
        self.count += 1
        self._in_flight = True

    def ended(self) -> bool:
        """Note that the attempt has ended, with or without a reply. Return whether it was sent."""
        was_sent, self._in_flight = self._in_flight, False
        return was_sent

    def check_not_stopped(self) -> None:
        """Raise CancelledError if :meth:`stop` was called."""
        if self._stopping:
            raise asyncio.CancelledError


class CoordinatorCalls:
    """Makes calls for one transactional id.

    Attributes:
        unanswered: requests without a reply since this was last cleared. The coordinator may still
            receive copies of them.
    """

    def __init__(
        self, config: ProducerConfig, coordinators: CoordinatorRequests, rng: random.Random
    ) -> None:
        assert config.transactional_id is not None
        self._id = config.transactional_id
        self._config = config
        self._coordinators = coordinators
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self.unanswered: set[CoordinatorApi] = set()

    async def perform(self, call: CoordinatorCall[ResponseT], attempts: Attempts) -> ResponseT:
        """Send a request until it succeeds, and return the reply. It has no timeout: callers have
        their own, and stop ``attempts``.

        Raises:
            AbortableTransactionError, FatalProducerError, ProducerFencedError: if the coordinator
                refuses the request.
            AuthenticationError: if authentication fails.
        """
        attempts.sent_to(self._coordinators)
        failed, warned = 0, False

        def pause_s(failures: int) -> float:
            pause = self._backoff.seconds(failures)
            if call.hurry and _is_behind_last(attempts.last_error):
                pause = min(pause, _BEHIND_LAST_TRANSACTION[:failures][-1])
            return pause

        def note(error: KafkaError, failures: int) -> None:
            nonlocal failed, warned
            error.with_traceback(None)  # which refers to what keeps the error
            attempts.check_not_stopped()
            failed = failures
            if not warned and not _is_behind_last(error):
                warned = True
                who = self._config.client_id
                log.warning("%s: %s failed, retrying: %s", who, self._what(call), error)

        reply = await retry(
            lambda: self._attempt(call, attempts),
            pause_s,
            is_retriable=lambda error: error is attempts.last_error,
            on_failure=note,
        )
        if warned:
            attempts_failed = counted(failed, "failed attempt")
            who = self._config.client_id
            log.info("%s: %s succeeded after %s", who, self._what(call), attempts_failed)
        return reply

    async def _attempt(self, call: CoordinatorCall[ResponseT], attempts: Attempts) -> ResponseT:
        """Send a request once. An error that allows another attempt is noted in ``attempts``."""
        group = call.group_id
        kind = CoordinatorType.TRANSACTION if group is None else CoordinatorType.GROUP
        key = self._id if group is None else group

        def prepare(peer: Peer) -> tuple[Request[ResponseT], int]:
            prepared = call.prepare(peer)
            attempts.sent()
            return prepared

        if call.before is not None:
            await call.before()
        answered = False
        try:
            reply = await self._coordinators.request(kind, key, prepare)
            answered = True
            codes = list(call.codes(reply))
            action, code = action_of_reply(call.api, codes)
        except AuthenticationError:
            raise
        except UnsupportedVersionError as error:
            raise FatalProducerError(
                ErrorCode.UNSUPPORTED_VERSION, f"{self._what(call)}: {error}"
            ) from error
        except BrokerError as error:
            # Only FindCoordinator raises these.
            finding = CoordinatorApi.FIND_COORDINATOR
            self._refuse(call, action_of_code(finding, error.code), error.code, finding)
            attempts.failed(error)
            raise
        except KafkaError as error:
            attempts.failed(error)
            raise
        finally:
            if attempts.ended() and not answered:
                self.unanswered.add(call.api)
        if action is ReplyAction.DONE:
            return reply
        named = [
            topic for topic, reported in zip(call.topics, codes, strict=False) if reported == code
        ]
        about = f" with topic {named[0]!r}" if named else ""
        self._refuse(call, action, code, call.api, about)
        if action is ReplyAction.NEW_COORDINATOR:
            self._coordinators.forget(kind, key)
        failure = BrokerError(code, self._what(call))
        attempts.failed(failure)
        raise failure

    @property
    def _principal(self) -> str:
        return principal_of(self._config)  # for errors; it may read a certificate

    def _what(self, call: CoordinatorCall[Any]) -> str:
        of_group = f" of group {call.group_id!r}" if call.group_id is not None else ""
        return f"transactional_id={self._id!r}: {call.api.value}{of_group}"

    def _refuse(
        self,
        call: CoordinatorCall[Any],
        action: ReplyAction,
        code: ErrorCode,
        api: CoordinatorApi,
        about: str = "",
    ) -> None:
        """Raise an error if the transaction or the producer can't continue after a reply to a
        request of this API.
        """
        what = f"{self._what(call)}{about}"
        if action is ReplyAction.FENCED:
            raise ProducerFencedError(
                ErrorCode.PRODUCER_FENCED,
                f"{what}: another producer took over the transactional id, or the "
                "transaction was open longer than "
                f"transaction_timeout_ms={self._config.transaction_timeout_ms}; "
                "close this producer",
            )
        advice = _ADVICE.get(code, "")
        if action is ReplyAction.FATAL:
            fatal = FatalProducerError(code, f"{what}: close this producer{advice}")
            raise explain(fatal, api.value, self._principal)
        if action is ReplyAction.ABORTABLE and call.api is CoordinatorApi.INIT_PRODUCER_ID:
            # No transaction is open that could be aborted.
            raise explain(BrokerError(code, f"{what}{advice}"), api.value, self._principal)
        if action is ReplyAction.ABORTABLE:
            text = f"{what}: call abort_transaction(){advice}"
            raise explain(AbortableTransactionError(code, text), api.value, self._principal)


def _is_behind_last(error: KafkaError | None) -> bool:
    """Return whether the error is that the coordinator still ends the previous transaction."""
    return isinstance(error, BrokerError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS


_ADVICE = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "; lower transaction_timeout_ms, or raise the broker's transaction.max.timeout.ms"
    ),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "; the broker removes a transactional id that was not used for "
        "transactional.id.expiration.ms"
    ),
}
