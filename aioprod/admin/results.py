"""The results and errors of a call about several items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self, TypeVar

from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger

log: Logger = get_logger(__name__)

# Number of failed items that the note of an error names.
_MAX_NAMED = 10

K = TypeVar("K")
V = TypeVar("V")


class Results(Mapping[K, V]):
    """A mapping from each item to its result.

    ``results[item]`` returns the item's result or raises its error. ``values()`` and ``items()`` do
    the same when they reach the item. Errors that are never retrieved are logged when the object is
    deleted.

    Args:
        call: the name of the call, for the log.
        outcomes: the result or error of each item.
    """

    def __init__(self, call: str, outcomes: Mapping[K, V | KafkaError]) -> None:
        self._call = call
        self._outcomes = dict(outcomes)
        self._retrieved = False

    def __getitem__(self, item: K) -> V:
        outcome = self._outcomes[item]
        if isinstance(outcome, KafkaError):
            self._retrieved = True
            raise outcome.with_traceback(None)
        return outcome

    def __contains__(self, item: object) -> bool:
        return item in self._outcomes

    def __iter__(self) -> Iterator[K]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        self._retrieved = True
        return f"Results({self._outcomes!r})"

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The errors of the items that failed."""
        self._retrieved = True
        return {
            item: outcome
            for item, outcome in self._outcomes.items()
            if isinstance(outcome, KafkaError)
        }

    @property
    def successes(self) -> dict[K, V]:
        """The results of the items that succeeded."""
        return {
            item: outcome
            for item, outcome in self._outcomes.items()
            if not isinstance(outcome, KafkaError)
        }

    def check(self) -> Self:
        """Raise the first error, with a note about the others. Return these results if no item
        failed.

        Raises:
            KafkaError: if an item failed.
        """
        errors = self.errors
        if not errors:
            return self
        first = next(iter(errors.values())).with_traceback(None)
        if len(errors) > 1:
            failed = ", ".join(str(item) for item in list(errors)[:_MAX_NAMED])
            first.__notes__ = [
                (
                    f"{len(errors)} of {len(self)} failed: "
                    f"{failed}{', ...' if len(errors) > _MAX_NAMED else ''}"
                )
            ]
        raise first

    def __del__(self) -> None:
        if not self._retrieved:
            for item, error in self.errors.items():
                log.error("%s: the error of %s was never retrieved: %s", self._call, item, error)
