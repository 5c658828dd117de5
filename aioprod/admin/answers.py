"""Checks of the results in responses of brokers, and errors for their error codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError, ProtocolError
from aioprod.foreign_text import reason_of
from aioprod.types import TopicPartition

V = TypeVar("V")


def single(answers: list[V], what: str) -> V:
    """Return the only result in the response to a request about one item."""
    if len(answers) != 1:
        raise ProtocolError(f"{what}: {len(answers)} answers to a request about one item")
    return answers[0]


def outcome(
    code: int, what: str, text: str | None, result: V, secrets: Iterable[str] = ()
) -> V | KafkaError:
    """Return ``result`` if the code is NONE, else the error with the broker's text, from which
    secrets of the request are removed.
    """
    return result if code == ErrorCode.NONE else broker_error(code, what, text, secrets)


def broker_error(
    code: int, what: str, text: str | None = None, secrets: Iterable[str] = ()
) -> BrokerError:
    """Return the error for an error code."""
    known = ErrorCode.of(code)
    said = "" if text == known.description else reason_of(text, secrets)
    return BrokerError(known, f"{what} ({said})" if said else what)


def check(code: int, what: str, text: str | None = None) -> None:
    """Raise the error for a code other than NONE."""
    if code != ErrorCode.NONE:
        raise broker_error(code, what, text)


def partition_name(tp: TopicPartition) -> str:
    """Return the name of a partition for error messages."""
    return f"{tp.topic}-{tp.partition}"
