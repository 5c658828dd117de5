"""Errors of background work: raised once in a call of the application, and kept for
``consumer.state`` until they are solved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AuthenticationError,
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    RequestTimedOutError,
    UnsupportedVersionError,
)

_MOST_UNREPORTED = 100


class Problems:
    """The unsolved errors by what has failed: a partition, a topic, a node.

    Args:
        on_report: called when an error is to be raised by the next call.
    """

    def __init__(self, on_report: Callable[[], None]) -> None:
        self._present: dict[Hashable, tuple[KafkaError, float]] = {}
        self._unreported: dict[Hashable, KafkaError] = {}
        self._on_report = on_report

    @property
    def latest(self) -> tuple[KafkaError, float] | None:
        """The last unsolved error, and the loop time of the first one; None if there is none."""
        if not self._present:
            return None
        return next(reversed(self._present.values()))[0], min(
            since for _, since in self._present.values()
        )

    def of(self, what: Hashable) -> KafkaError | None:
        """Return the last unsolved error of a partition, topic or node."""
        found = self._present.get(what)
        return None if found is None else found[0]

    def since(self, what: Hashable) -> float | None:
        """Return the loop time of the first unsolved error of a partition, topic or node."""
        found = self._present.get(what)
        return None if found is None else found[1]

    def note(self, what: Hashable, error: KafkaError, now: float) -> None:
        """Keep an error that is retried."""
        _, since = self._present.pop(what, (error, now))
        self._present[what] = error, since

    def report(self, what: Hashable, error: KafkaError, now: float) -> None:
        """Keep an error; the next call raises it."""
        self.note(what, error, now)
        if len(self._unreported) < _MOST_UNREPORTED:
            self._unreported[what] = error
        self._on_report()

    def add(self, what: Hashable, error: KafkaError, now: float) -> None:
        """Keep an error; the next call raises it if a retry alone would not help."""
        if is_worth_raising(error):
            self.report(what, error, now)
        else:
            self.note(what, error, now)

    def over(self, what: Hashable) -> None:
        """Forget an error: the request has succeeded."""
        if self._present:
            self._present.pop(what, None)
            self._unreported.pop(what, None)

    def forget_report(self, what: Hashable) -> None:
        """Do not raise this error: the application has got it already."""
        self._unreported.pop(what, None)

    def keep(self, partitions: Callable[[Hashable], bool]) -> None:
        """Forget the errors of all except these partitions."""
        for what in [what for what in self._present if not partitions(what)]:
            self.over(what)

    def take_unreported(self) -> KafkaError | None:
        """Return the first error that was not raised yet; the caller raises it."""
        return self._unreported.pop(next(iter(self._unreported))) if self._unreported else None


def is_worth_raising(error: KafkaError) -> bool:
    """Return whether to raise an error to the application: a retry alone would not help."""
    if isinstance(error, BrokerError):
        return not (
            error.code.retriable
            or error.code.refresh_metadata
            or error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        )
    return isinstance(error, AuthenticationError | UnsupportedVersionError) or not isinstance(
        error, BrokerConnectionError | RequestTimedOutError
    )
