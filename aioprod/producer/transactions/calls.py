"""One request to a coordinator, again and again until there is an answer that settles it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from aioprod.cluster.coordinators import CoordinatorType
from aioprod.cluster.retry import retry
from aioprod.config.producer import ProducerConfig
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
from aioprod.net.backoff import Backoff
from aioprod.producer.transactions.requests import Peer
from aioprod.producer.transactions.verdicts import Api, Verdict, judge, judge_all
from aioprod.protocol.message import Message, Request

log = logging.getLogger(__name__)

# The coordinator still ends the transaction before: that takes it milliseconds, so the first
# partition need not wait a whole back-off (KAFKA-5482). Java waits 20 ms each time.
_BEHIND_LAST_TRANSACTION = (0.002, 0.004, 0.008, 0.016, 0.02)

ResponseT = TypeVar("ResponseT", bound=Message)


class CoordinatorRequests(Protocol):
    """What is asked of :class:`aioprod.cluster.coordinators.Coordinators`."""

    @property
    def trouble(self) -> KafkaError | None:
        """Why the last try to reach a coordinator failed; None once one is reached."""

    async def request(
        self,
        kind: CoordinatorType,
        key: str,
        prepare: Callable[[Any], tuple[Request[ResponseT], int]],
        /,
    ) -> ResponseT:
        """Send one request and return its answer."""

    def forget(self, kind: CoordinatorType, key: str, /) -> None:
        """Look for the coordinator again before the next request."""


@dataclass(frozen=True, slots=True)
class CoordinatorCall(Generic[ResponseT]):
    """A request and how its answer is read.

    Attributes:
        prepare: makes the message for a connection; called anew for each attempt, right before it
            is sent.
        codes: the error codes in an answer.
        hurry: whether to try again at once where only the end of the transaction before has to be
            waited for.
        before: what has to be done before each attempt, if anything.
    """

    api: Api
    prepare: Callable[[Peer], tuple[Request[ResponseT], int]]
    codes: Callable[[ResponseT], Iterable[ErrorCode]]
    group_id: str | None = None
    hurry: bool = False
    before: Callable[[], Awaitable[None]] | None = None


class Attempts:
    """Lets others end a repeated request without ever leaving one half done: an attempt that is on
    its way is waited for.

    Attributes:
        task: what repeats it.
        last_error: why the latest attempt was not the last.
        coordinators: where it is sent to, once it is.
        count: how often it was sent.
    """

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.last_error: KafkaError | None = None
        self.coordinators: CoordinatorRequests | None = None
        self.count = 0
        self._on_its_way = False
        self._stopping = False

    @property
    def trouble(self) -> KafkaError | None:
        """Why it is not done yet, as far as is known; perhaps it could not even be sent."""
        return self.last_error or (
            self.coordinators.trouble if self.coordinators is not None else None
        )

    def run_by(self, task: asyncio.Task[None]) -> None:
        """Note the task that makes the attempts."""
        self.task = task

    def sent_to(self, coordinators: CoordinatorRequests) -> None:
        """Note what the attempts are sent by."""
        self.coordinators = coordinators

    def failed(self, error: KafkaError) -> None:
        """Note why the latest attempt was not the last."""
        self.last_error = error

    def stop(self) -> None:
        """End the task, at once or after the answer that it waits for."""
        self._stopping = True
        if self.task is not None and not self._on_its_way:
            self.task.cancel()

    def sent(self) -> None:
        """An attempt is about to leave."""
        self.count += 1
        self._on_its_way = True

    def landed(self) -> bool:
        """The attempt has an answer, or won't get one. Returns whether it had left at all."""
        had_left, self._on_its_way = self._on_its_way, False
        return had_left

    def check_go_on(self) -> None:
        """Raises CancelledError where it was to stop."""
        if self._stopping:
            raise asyncio.CancelledError


class CoordinatorCalls:
    """Makes calls in the name of one transactional id.

    Attributes:
        unanswered: requests that got no answer since this was last cleared: copies of them may
            still arrive.
    """

    def __init__(
        self, config: ProducerConfig, coordinators: CoordinatorRequests, rng: random.Random
    ) -> None:
        assert config.transactional_id is not None
        self._id = config.transactional_id
        self._config = config
        self._coordinators = coordinators
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self.unanswered: set[Api] = set()

    async def perform(self, call: CoordinatorCall[ResponseT], attempts: Attempts) -> ResponseT:
        """The answer of success. Has no limit of time: whoever waits for it has one, and
        ``attempts`` ends it.

        Raises:
            AbortableTransactionError, FatalProducerError, ProducerFencedError: the coordinator
            refuses.
            AuthenticationError: client and broker don't trust each other.
        """
        attempts.sent_to(self._coordinators)
        failed, logged = 0, False

        def pause_s(failures: int) -> float:
            pause = self._backoff.seconds(failures)
            if call.hurry and _ends_transaction_before(attempts.last_error):
                hurried = min(failures, len(_BEHIND_LAST_TRANSACTION)) - 1
                pause = min(pause, _BEHIND_LAST_TRANSACTION[hurried])
            return pause

        def note(error: KafkaError, failures: int) -> None:
            nonlocal failed, logged
            attempts.check_go_on()
            failed = failures
            if not logged and not _ends_transaction_before(error):
                logged = True
                log.warning("%s failed, retrying: %s", self._what(call), error)

        reply = await retry(
            lambda: self._attempt(call, attempts),
            pause_s,
            is_retriable=lambda error: error is attempts.last_error,
            on_failure=note,
        )
        if logged:
            log.info("%s succeeded after %d failed attempts", self._what(call), failed)
        return reply

    async def _attempt(self, call: CoordinatorCall[ResponseT], attempts: Attempts) -> ResponseT:
        """Make one attempt. An error that another attempt may resolve is noted in ``attempts``."""
        kind, key = (
            (CoordinatorType.TRANSACTION, self._id)
            if call.group_id is None
            else (CoordinatorType.GROUP, call.group_id)
        )

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
            verdict, code = judge_all(call.api, call.codes(reply))
        except AuthenticationError:
            raise
        except UnsupportedVersionError as error:
            raise FatalProducerError(
                ErrorCode.UNSUPPORTED_VERSION, f"{self._what(call)}: {error}"
            ) from error
        except BrokerError as error:
            # Only the search for the coordinator raises these.
            self._refuse(call, judge(Api.FIND_COORDINATOR, error.code), error.code)
            attempts.failed(error)
            raise
        except KafkaError as error:
            attempts.failed(error)
            raise
        finally:
            if attempts.landed() and not answered:
                self.unanswered.add(call.api)
        if verdict is Verdict.DONE:
            return reply
        self._refuse(call, verdict, code)
        if verdict is Verdict.NEW_COORDINATOR:
            self._coordinators.forget(kind, key)
        failure = BrokerError(code, self._what(call))
        attempts.failed(failure)
        raise failure

    def _what(self, call: CoordinatorCall[Any]) -> str:
        of_group = f" of group {call.group_id!r}" if call.group_id is not None else ""
        return f"transactional_id={self._id!r}: {call.api.value}{of_group}"

    def _refuse(self, call: CoordinatorCall[Any], verdict: Verdict, code: ErrorCode) -> None:
        """Raise the error of a verdict that ends the transaction or the producer."""
        what = self._what(call)
        if verdict is Verdict.FENCED:
            raise ProducerFencedError(
                ErrorCode.PRODUCER_FENCED,
                f"{what}: another producer took over the transactional id, or the "
                "transaction was open longer than "
                f"transaction_timeout_ms={self._config.transaction_timeout_ms}; close it",
            )
        advice = _ADVICE.get(code, "")
        if verdict is Verdict.FATAL:
            raise FatalProducerError(code, f"{what}: close this producer{advice}")
        if verdict is Verdict.ABORTABLE and call.api is Api.INIT_PRODUCER_ID:
            # There is no transaction yet that could be aborted.
            raise BrokerError(code, f"{what}{advice}")
        if verdict is Verdict.ABORTABLE:
            raise AbortableTransactionError(code, f"{what}: call abort_transaction(){advice}")


def _ends_transaction_before(error: KafkaError | None) -> bool:
    """Whether the coordinator is still ending the transaction before, for a moment."""
    return isinstance(error, BrokerError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS


_ADVICE = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "; lower transaction_timeout_ms, or raise the broker's transaction.max.timeout.ms"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "; it needs the rights Describe and Write on the transactional id"
    ),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "; the broker forgets a transactional id that is not used for "
        "transactional.id.expiration.ms"
    ),
}
