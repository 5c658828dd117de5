"""Checks on the answers of brokers, and the errors for the codes in them."""

from __future__ import annotations

from typing import TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError, ProtocolError
from aioprod.types import TopicPartition

V = TypeVar("V")


def single(answers: list[V], what: str) -> V:
    """The one answer to a request about one thing."""
    if len(answers) != 1:
        raise ProtocolError(f"{what}: {len(answers)} answers to a request about one")
    return answers[0]


def outcome(code: int, what: str, text: str | None, result: V) -> V | KafkaError:
    """``result`` where the code is that of success, else the error, with the broker's own text in
    it.
    """
    return result if code == ErrorCode.NONE else refusal(code, what, text)


def refusal(code: int, what: str, text: str | None = None) -> BrokerError:
    """The error for a code that a broker answered with."""
    known = ErrorCode.of(code)
    return BrokerError(known, what if not text or text == known.description else f"{what} ({text})")


def check(code: int, what: str, text: str | None = None) -> None:
    """Raise the error for a code that is not that of success."""
    if code != ErrorCode.NONE:
        raise refusal(code, what, text)


def place(tp: TopicPartition) -> str:
    """A partition's name for errors."""
    return f"{tp.topic}-{tp.partition}"
