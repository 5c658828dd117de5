"""The attempts of one call, and the outcome of each of its items."""

from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from aioprod.admin.results import Results
from aioprod.cluster.metadata import NOT_READY
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    RequestTimedOutError,
)

K = TypeVar("K")
V = TypeVar("V")

# Some brokers may not know a new topic yet.
_UNKNOWN_TOPIC_LIMIT_S = 0.5
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_IN_DOUBT = "(an earlier attempt got no response, and may have caused this error)"
# Retriable for producers and consumers, final for an admin call.
_FINAL = (
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
)


class Attempt(NamedTuple, Generic[K]):
    """One attempt of a call.

    Attributes:
        items: the items without an outcome.
        number: 1 for the first attempt.
        timeout_ms: limit on the broker's work, in milliseconds.
    """

    items: list[K]
    number: int
    timeout_ms: int


class Outcomes(Generic[K, V]):
    """The outcome of each item of a call: its result or its error.

    Attributes:
        pending: the items without an outcome.
        attempts: the number of attempts so far.
    """

    def __init__(self, call: str, items: Iterable[K]) -> None:
        self._call = call
        self._order = list(dict.fromkeys(items))
        self.pending: dict[K, None] = dict.fromkeys(self._order)
        self.attempts: int = 0
        self._outcomes: dict[K, V | KafkaError] = {}
        self._last_errors: dict[K, KafkaError] = {}
        self._unanswered: set[K] = set()

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self._order)

    def results(self) -> Results[K, V]:
        """Return all outcomes, in the order of the items."""
        return Results(self._call, {item: self._outcomes[item] for item in self._order})

    def errors(self) -> list[KafkaError]:
        """Return the errors of items, without marking them as retrieved by the application."""
        return [outcome for outcome in self._outcomes.values() if isinstance(outcome, KafkaError)]

    def check_complete(self) -> None:
        """Raise an error of the last attempt if an item has no outcome yet."""
        if self.pending:
            raise self._last_errors[next(iter(self.pending))]

    def take(self, answers: Mapping[K, V | KafkaError], seconds: float) -> None:
        """Record the results of an attempt.

        Args:
        answers: the result or error of each item.
        seconds: time since the start of the call.
        """
        self.attempts += 1
        for item in list(self.pending):
            answer = (
                answers[item]
                if item in answers
                else ProtocolError(f"{self._call}: the broker's response does not contain {item}")
            )
            if isinstance(answer, KafkaError) and _is_temporary(answer, seconds):
                self._last_errors[item] = answer
                if (
                    not isinstance(answer, BrokerError)
                    or answer.code is ErrorCode.REQUEST_TIMED_OUT
                ):
                    self._unanswered.add(item)
                continue
            del self.pending[item]
            if (
                isinstance(answer, BrokerError)
                and item in self._unanswered
                and _IN_DOUBT not in str(answer)
            ):
                answer.args = (f"{answer} {_IN_DOUBT}",)
            self._outcomes[item] = answer

    def give_up(self, limit: str) -> None:
        """Set a KafkaTimeoutError as the outcome of all pending items."""
        for item in self.pending:
            why = self._last_errors.get(item) or "no broker responded, so it may still be done"
            about = "" if item == self._call else f" {item}"
            self._outcomes[item] = KafkaTimeoutError(
                f"{self._call}{about}: not done within {limit}; {why}"
            )


def _is_temporary(error: KafkaError, seconds: float) -> bool:
    """Return whether another attempt may succeed."""
    if isinstance(error, BrokerError):
        if error.code in _UNKNOWN_TOPIC:
            return seconds < _UNKNOWN_TOPIC_LIMIT_S
        if error.code in NOT_READY:
            return True
        return error.code.retriable and error.code not in _FINAL
    return isinstance(error, BrokerConnectionError | RequestTimedOutError)
