"""What goes wrong in the background: told to the reader once, and kept for ``consumer.state`` until
it is over.
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

_MOST_UNTOLD = 100


class Problems:
    """Errors by what they befall: a partition, a node, an API.

    Args:
        on_untold: called when there is an error that the application has to be told of.
    """

    def __init__(self, on_untold: Callable[[], None]) -> None:
        self._present: dict[Hashable, tuple[KafkaError, float]] = {}
        self._untold: dict[Hashable, KafkaError] = {}
        self._on_untold = on_untold

    @property
    def latest(self) -> tuple[KafkaError, float] | None:
        """The error that came last of those that are not over, and since when (loop time) there has
        been one; None where all is well.
        """
        if not self._present:
            return None
        return next(reversed(self._present.values()))[0], min(
            since for _, since in self._present.values()
        )

    def note(self, what: Hashable, error: KafkaError, now: float) -> None:
        """Something failed, and is tried again."""
        _, since = self._present.pop(what, (error, now))
        self._present[what] = error, since

    def tell(self, what: Hashable, error: KafkaError, now: float) -> None:
        """Something failed that the application has to know of."""
        self.note(what, error, now)
        if len(self._untold) < _MOST_UNTOLD:
            self._untold[what] = error
        self._on_untold()

    def add(self, what: Hashable, error: KafkaError, now: float) -> None:
        """The one or the other, as the error is."""
        if is_worth_telling(error):
            self.tell(what, error, now)
        else:
            self.note(what, error, now)

    def over(self, what: Hashable) -> None:
        """It works again."""
        if self._present:
            self._present.pop(what, None)
            self._untold.pop(what, None)

    def told(self, what: Hashable) -> None:
        """The application knows of it."""
        self._untold.pop(what, None)

    def keep(self, partitions: Callable[[Hashable], bool]) -> None:
        """Forget what befell anything else than these."""
        for what in [what for what in self._present if not partitions(what)]:
            self.over(what)

    def take_untold(self) -> KafkaError | None:
        """The first error that the reader has not been told of, which he is now."""
        return self._untold.pop(next(iter(self._untold))) if self._untold else None


def is_worth_telling(error: KafkaError) -> bool:
    """Whether an error needs the application: another try alone would not help."""
    if isinstance(error, BrokerError):
        return not (
            error.code.retriable
            or error.code.refresh_metadata
            or error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        )
    return isinstance(error, AuthenticationError | UnsupportedVersionError) or not isinstance(
        error, BrokerConnectionError | RequestTimedOutError
    )
