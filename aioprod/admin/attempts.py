"""The attempts of one call, and the outcome of each of its items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from aioprod.admin.results import Results
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

# A topic that was made a moment ago may not be known to every broker yet.
_UNKNOWN_TOPIC_LIMIT_S = 0.5
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_IN_DOUBT = "(an attempt before had no answer: it may have been the cause)"
# Retriable for a client that sends or reads; here they are answers.
_FINAL = (
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
)


@dataclass(frozen=True, slots=True)
class Attempt(Generic[K]):
    """One try.

    Attributes:
        items: those that have no outcome yet.
        number: 1 for the first.
        timeout_ms: how long a broker may take.
    """

    items: list[K]
    number: int
    timeout_ms: int


class Outcomes(Generic[K, V]):
    """What became of each item so far."""

    def __init__(self, call: str, items: Iterable[K]) -> None:
        self._call = call
        self._order = list(dict.fromkeys(items))
        self.pending = dict.fromkeys(self._order)
        self.attempts = 0
        self._found: dict[K, V | KafkaError] = {}
        self._last: dict[K, KafkaError] = {}
        self._unanswered: set[K] = set()

    def results(self) -> Results[K, V]:
        """All outcomes, in the order in which the items were given."""
        return Results(self._call, {item: self._found[item] for item in self._order})

    def check_complete(self) -> None:
        """Raise an error of the last attempt if it has left an item without an outcome."""
        if self.pending:
            raise self._last[next(iter(self.pending))]

    def take(self, answers: Mapping[K, V | KafkaError], seconds: float) -> None:
        """An attempt's answers, so many seconds after the call began."""
        self.attempts += 1
        for item in list(self.pending):
            answer = (
                answers[item]
                if item in answers
                else ProtocolError(f"{self._call}: the broker's answer leaves out {item}")
            )
            if isinstance(answer, KafkaError) and _may_pass(answer, seconds):
                self._last[item] = answer
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
            self._found[item] = answer

    def give_up(self, limit: str) -> None:
        """The time is over."""
        for item in self.pending:
            why = self._last.get(item) or "there was no answer, so it may still be done"
            about = "" if item == self._call else f" {item}"
            self._found[item] = KafkaTimeoutError(
                f"{self._call}{about}: not done within {limit}; {why}"
            )


def _may_pass(error: KafkaError, seconds: float) -> bool:
    """Whether another attempt may bring something else."""
    if isinstance(error, BrokerError):
        if error.code in _UNKNOWN_TOPIC:
            return seconds < _UNKNOWN_TOPIC_LIMIT_S
        return error.code.retriable and error.code not in _FINAL
    return isinstance(error, BrokerConnectionError | RequestTimedOutError)
