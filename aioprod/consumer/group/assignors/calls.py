"""Calls assignors, which may be users' code, from tasks that no application awaits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from aioprod.consumer.group.assignors.assignor import Assignor
from aioprod.errors import ConsumerStateError
from aioprod.logs import Logger, get_logger
from aioprod.types import TopicPartition
from aioprod.user_code import surface

log: Logger = get_logger(__name__)

T = TypeVar("T")


def ask_assignor(assignor: Assignor, question: Callable[..., T], *arguments: object) -> T:
    """Call a method of the assignor, and return its result.

    Raises:
        Exception: if the assignor raises it.
        ConsumerStateError: if the assignor raises another BaseException. CancelledError would look
            like a cancellation of the task that joins.
    """
    try:
        return question(*arguments)
    except Exception:
        raise
    except BaseException as error:
        surface(error)
        name = type(error).__name__
        raise ConsumerStateError(f"assignor {assignor.name!r} failed with {name}") from error


def notify_assignor(assignor: Assignor, given: Collection[TopicPartition], generation: int) -> None:
    """Call ``on_assignment``, and log an exception: the member has the partitions nevertheless."""
    try:
        assignor.on_assignment(given, generation)
    except BaseException as error:
        log.warning("assignor %r failed in on_assignment", assignor.name, exc_info=error)
        surface(error)
