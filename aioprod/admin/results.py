"""What a call about several things came to, one by one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Self, TypeVar

from aioprod.errors import KafkaError

log = logging.getLogger(__name__)

# So many of the items that failed are in the note of an error.
_NAMED = 10

K = TypeVar("K")
V = TypeVar("V")


class Results(Mapping[K, V]):
    """A mapping from each item to its result.

    ``results[item]`` gives the item's result, or raises its error; so do ``values()`` and
    ``items()`` when they come to it. One failed item does not hide the others. Errors that nobody
    looked at are logged when the results are dropped.

    Args:
        call: what was asked for, for the log.
        outcomes: per item its result or its error.
    """

    def __init__(self, call: str, outcomes: Mapping[K, V | KafkaError]) -> None:
        self._call = call
        self._outcomes = dict(outcomes)
        self._looked = False

    def __getitem__(self, item: K) -> V:
        outcome = self._outcomes[item]
        if isinstance(outcome, KafkaError):
            self._looked = True
            raise outcome.with_traceback(None)
        return outcome

    def __contains__(self, item: object) -> bool:
        return item in self._outcomes

    def __iter__(self) -> Iterator[K]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        self._looked = True
        return f"Results({self._outcomes!r})"

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The items that failed, each with its error."""
        self._looked = True
        return {
            item: outcome
            for item, outcome in self._outcomes.items()
            if isinstance(outcome, KafkaError)
        }

    @property
    def successes(self) -> dict[K, V]:
        """The items that did not fail, each with its result."""
        return {
            item: outcome
            for item, outcome in self._outcomes.items()
            if not isinstance(outcome, KafkaError)
        }

    def check(self) -> Self:
        """Raise the first item's error, with a note of the others; these same results where nothing
        failed.

        Raises:
            KafkaError: an item failed.
        """
        errors = self.errors
        if not errors:
            return self
        first = next(iter(errors.values())).with_traceback(None)
        if len(errors) > 1:
            failed = ", ".join(str(item) for item in list(errors)[:_NAMED])
            first.__notes__ = [
                (
                    f"{len(errors)} of {len(self)} failed: "
                    f"{failed}{', ...' if len(errors) > _NAMED else ''}"
                )
            ]
        raise first

    def __del__(self) -> None:
        if not self._looked:
            for item, error in self.errors.items():
                log.error("%s: nobody looked at the error of %s: %s", self._call, item, error)
