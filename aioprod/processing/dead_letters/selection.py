"""Selects dead letters."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Final

from aioprod import ConfigError
from aioprod.config.checks import in_range
from aioprod.processing.dead_letters.letters import DeadLetter
from aioprod.public_module import set_module

_MOST_REDRIVES: Final = 1_000_000

SELECTED: Final = "selected"
FILTERED: Final = "filtered"
TOO_OFTEN: Final = "too often"
NO_ORIGIN: Final = "no origin"


@set_module("aioprod.processing.dead_letters")
@dataclass(frozen=True, slots=True)
class Selection:
    """Selects the dead letters that meet all given conditions.

    Attributes:
        error: a text that the class or the message of the error contains, in upper or lower case.
        since_ms: they were written to the dead-letter topic at this time or later, in milliseconds
            since 1970.
        until_ms: they were written there before this time.
        key: the key.
        original_topic: the topic that they come from.
        max_redrives: leave out records that were sent again this often, so that a record that fails
            each time does not go round forever; None: no limit.

    Raises:
        ConfigError: if a value is invalid.
    """

    error: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    key: bytes | None = None
    original_topic: str | None = None
    max_redrives: int | None = 3

    def __post_init__(self) -> None:
        if self.max_redrives is not None:
            in_range(1, _MOST_REDRIVES)("max_redrives", self.max_redrives)
        if self.key is not None and not isinstance(self.key, bytes):
            raise ConfigError(f"key of type {type(self.key).__name__}: must be bytes")

    def verdict(self, letter: DeadLetter) -> str:
        """Return ``SELECTED``, ``FILTERED`` or ``TOO_OFTEN``."""
        if not self._meets(letter):
            return FILTERED
        if self.max_redrives is not None and letter.redrives >= self.max_redrives:
            return TOO_OFTEN
        return SELECTED

    def _meets(self, letter: DeadLetter) -> bool:
        written_ms = letter.record.timestamp
        wanted = self.error.casefold()
        return (
            (not wanted or wanted in f"{letter.error}: {letter.message}".casefold())
            and (self.since_ms is None or written_ms >= self.since_ms)
            and (self.until_ms is None or written_ms < self.until_ms)
            and (self.key is None or letter.key == self.key)
            and (self.original_topic is None or letter.original_topic == self.original_topic)
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """A selection of records for a purpose. Its text says later which records it chose.

    Attributes:
        needs_origin: whether records are left out that don't name their topic.
    """

    selection: Selection
    needs_origin: bool

    def verdict(self, letter: DeadLetter) -> str:
        """Return ``SELECTED``, or why not."""
        verdict = self.selection.verdict(letter)
        if verdict == SELECTED and self.needs_origin and letter.original_topic is None:
            return NO_ORIGIN
        return verdict

    def to_json(self) -> dict[str, Any]:
        """Return the conditions that are given, for `of_json`."""
        given = self.selection
        key = None if given.key is None else b64encode(given.key).decode()
        conditions = {
            "error": given.error or None,
            "since": given.since_ms,
            "until": given.until_ms,
            "key": key,
            "topic": given.original_topic,
            "redrives": given.max_redrives,
            "origin": self.needs_origin or None,
        }
        return {name: value for name, value in conditions.items() if value is not None}

    @classmethod
    def of_json(cls, given: dict[str, Any]) -> Choice:
        """Return the choice of `to_json`.

        Raises:
            ValueError, TypeError, AttributeError: if it is not one.
        """
        left = dict(given)
        key = left.pop("key", None)
        choice = cls(
            Selection(
                str(left.pop("error", "")),
                left.pop("since", None),
                left.pop("until", None),
                None if key is None else b64decode(key),
                left.pop("topic", None),
                left.pop("redrives", None),
            ),
            bool(left.pop("origin", False)),
        )
        if left:
            raise ValueError(f"unknown conditions: {', '.join(left)}")
        return choice

    def text(self) -> str:
        """Return the same text for the same choice."""
        return json.dumps(self.to_json(), sort_keys=True)
