"""One setting with Kafka's metadata, and the validation of its value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_DECIMAL_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_THROTTLED = re.compile(r"[0-9]+:[0-9]+")  # partition and broker


class SettingType(IntEnum):
    """Kafka's numbers for the types of settings (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {SettingType.INT: 32, SettingType.SHORT: 16, SettingType.LONG: 64}


class Source(IntEnum):
    """Kafka's numbers for the source of a value. Among a topic's and its brokers' values, the one
    with the lowest number wins.
    """

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(slots=True, frozen=True)
class Setting:
    """A setting of brokers or of topics.

    Attributes:
        default: the default value; None if there is none.
        dynamic: True if it can be changed while the broker is running.
        broker_name: the broker's setting for the default of a topic's setting; "" for none.
        allowed: the allowed values, or ranges of numbers from low to high; empty if only the type
            is checked.
    """

    name: str
    type: SettingType
    default: str | None
    dynamic: bool = True
    broker_name: str = ""
    allowed: tuple[str | tuple[float, float], ...] = ()

    @property
    def is_sensitive(self) -> bool:
        """True if its value is never shown."""
        return self.type in (SettingType.PASSWORD, SettingType.UNKNOWN)

    def check(self, text: str) -> None:
        """Raise RequestError (INVALID_CONFIG) if a value is invalid."""
        if self.type is SettingType.LIST:
            self._check_items([item.strip() for item in text.split(",")] if text.strip() else [])
        elif self.type is SettingType.BOOLEAN:
            self._check_that(text.strip().lower() in ("true", "false"), text, "true or false")
        elif self.type is SettingType.DOUBLE or self.type in _BITS:
            self._check_range(self.parse_number(text), text)
        elif self.allowed:
            self._check_that(
                text.strip() in self.allowed, text, f"one of {', '.join(map(str, self.allowed))}"
            )

    def parse_number(self, text: str) -> float:
        """Return the number in a text; raise RequestError (INVALID_CONFIG) if it is not one of this
        type.
        """
        text = text.strip()
        if self.type is SettingType.DOUBLE:
            self._check_that(_DECIMAL_NUMBER.fullmatch(text) is not None, text, "a number")
            return float(text)
        bits = _BITS[self.type]
        self._check_that(_WHOLE_NUMBER.fullmatch(text) is not None, text, "a whole number")
        self._check_that(
            -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1),
            text,
            f"a whole number of {bits} bits",
        )
        return int(text)

    def _check_range(self, number: float, text: str) -> None:
        ranges = [each for each in self.allowed if not isinstance(each, str)]
        wanted = " or ".join(f"{low:g} to {high:g}" for low, high in ranges)
        self._check_that(
            not ranges or any(low <= number <= high for low, high in ranges), text, wanted
        )

    def _check_items(self, items: list[str]) -> None:
        if self.name.endswith(".throttled.replicas"):
            self._check_that(
                items in ([], ["*"]) or all(map(_THROTTLED.fullmatch, items)),
                ",".join(items),
                "* or partition:broker,...",
            )
        elif self.allowed:
            self._check_that(
                set(items) <= set(self.allowed),
                ",".join(items),
                f"some of {', '.join(map(str, self.allowed))}",
            )

    def _check_that(self, is_right: bool, text: str, wanted: str) -> None:
        if not is_right:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{self.name}={text}: must be {wanted}")
