"""The position at which a consumer starts to read a partition without a valid one
(``auto.offset.reset``).
"""

import re
from datetime import timedelta
from typing import NamedTuple

from aioprod.errors import ConfigError

EARLIEST = "earliest"
LATEST = "latest"
NONE = "none"
BY_DURATION = "by_duration"

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)


class OffsetReset(NamedTuple):
    """A parsed ``auto_offset_reset``.

    Attributes:
        strategy: ``earliest``, ``latest``, ``none`` or ``by_duration`` (KIP-1106).
        duration_ms: for ``by_duration``, how far back to start.
    """

    strategy: str
    duration_ms: int = 0

    @classmethod
    def parse(cls, given: object) -> "OffsetReset":
        """Parse ``earliest``, ``latest``, ``none``, ``by_duration:`` with an ISO 8601 duration
        such as ``P1DT6H``, or a timedelta of at least 0.

        Raises:
            ConfigError: if ``given`` is invalid.
        """
        if isinstance(given, timedelta) and given >= timedelta():
            return cls(BY_DURATION, round(given / timedelta(milliseconds=1)))
        if isinstance(given, str):
            strategy, colon, duration = given.strip().lower().partition(":")
            if not colon and strategy in (EARLIEST, LATEST, NONE):
                return cls(strategy)
            match = _DURATION.fullmatch(duration)
            if strategy == BY_DURATION and match is not None and any(match.groups()):
                days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
                return cls(
                    strategy, round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
                )
        raise ConfigError(
            f"auto_offset_reset={given!r}: must be earliest, latest, none, a timedelta of at least "
            "0, or by_duration: with an ISO 8601 duration, such as by_duration:P1DT6H"
        )


def check_offset_reset(name: str, value: object) -> object:
    """Check ``auto_offset_reset``."""
    OffsetReset.parse(value)
    return value
