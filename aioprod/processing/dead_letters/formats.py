"""The headers that programs add to dead letters. Each format is a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from aioprod.dead_letter_headers import PROCESSOR, REDRIVES, SPARK
from aioprod.types import Header

_MOST_DIGITS = len(str(2**63 - 1))
_INTEGER_SIZES = (4, 8)

#: What a header says: the fields of a `DeadLetter`.
TOPIC, PARTITION, OFFSET, TIMESTAMP = "topic", "partition", "offset", "timestamp"
GROUP, ERROR, MESSAGE = "group", "error", "message"
ATTEMPTS, DELIVERIES = "attempts", "deliveries"
_ORIGIN: Final = (TOPIC, PARTITION, OFFSET, TIMESTAMP, GROUP)


def of_digits(data: bytes) -> int | None:
    """Return a number that is written as text; None for anything else."""
    return int(data) if data.isdigit() and len(data) <= _MOST_DIGITS else None


def of_big_endian(data: bytes) -> int | None:
    """Return a number of 4 or 8 bytes, the most significant first; None for anything else."""
    if len(data) not in _INTEGER_SIZES:
        return None
    number = int.from_bytes(data, "big", signed=True)
    return number if number >= 0 else None


class Format(NamedTuple):
    """The headers of one kind of program.

    Attributes:
        name: as users see it.
        prefixes: how the names of the headers begin that it adds.
        names: the header of each field, or several, the preferred one first.
        number: converts numbers.
        repeats_origin: whether a record that fails again keeps the headers of its first failure,
            and gets the same names again.
    """

    name: str
    prefixes: tuple[str, ...]
    names: Mapping[str, Sequence[str]]
    number: Callable[[bytes], int | None] = of_digits
    repeats_origin: bool = False

    def adds(self, name: str) -> bool:
        """Return whether a header is one that this kind of program adds."""
        return name.startswith(self.prefixes) and name != REDRIVES

    def find(self, headers: Sequence[Header], field: str) -> bytes | None:
        """Return the header of a field. Of several with one name the last one counts, and of those
        that name the origin the first one if the format repeats them.
        """
        in_order = headers
        if not (self.repeats_origin and field in _ORIGIN):
            in_order = headers[::-1]
        for wanted in self.names.get(field, ()):
            for name, value in in_order:
                if name == wanted and value is not None:
                    return value
        return None


def _all(prefix: str, **names: str) -> dict[str, Sequence[str]]:
    return {field: (prefix + name,) for field, name in names.items()}


def _spring(infix: str) -> dict[str, Sequence[str]]:
    """Return the names of spring-kafka's headers in dead-letter topics or retry topics."""
    origin = {field: (f"kafka_{infix}original-{field}",) for field in _ORIGIN[:4]}
    exceptions = (f"kafka_{infix}exception", f"kafka_{infix}key-exception")
    return {
        **origin,
        GROUP: ("kafka_dlt-original-consumer-group",),
        # The cause is the error of the listener; the other one says only that the listener failed.
        ERROR: (f"{exceptions[0]}-cause-fqcn", *(f"{each}-fqcn" for each in exceptions)),
        MESSAGE: tuple(f"{each}-message" for each in exceptions),
        ATTEMPTS: ("retry_topic-attempts",),
    }


_SPRING_RETRIES = ("kafka_original-", "kafka_exception-", "kafka_key-exception-", "retry_topic-")

FORMATS: Final = (
    Format(
        "aioprod",
        (PROCESSOR,),
        _all(
            PROCESSOR,
            topic="original-topic",
            partition="original-partition",
            offset="original-offset",
            timestamp="original-timestamp",
            group="group-id",
            error="error-class",
            message="error-message",
            attempts="attempts",
            deliveries="delivery-count",
        ),
    ),
    Format(
        "aioprod-spark",
        tuple(SPARK + name for name in ("reason", "topic", "partition", "offset", "timestamp")),
        _all(
            SPARK,
            topic="topic",
            partition="partition",
            offset="offset",
            timestamp="timestamp",
            message="reason",
        ),
    ),
    Format(
        "connect",
        ("__connect.errors.",),
        _all(
            "__connect.errors.",
            topic="topic",
            partition="partition",
            offset="offset",
            group="connector.name",
            error="exception.class.name",
            message="exception.message",
        ),
    ),
    Format("spring", ("kafka_dlt-",), _spring("dlt-"), of_big_endian, repeats_origin=True),
    Format("spring-retry", _SPRING_RETRIES, _spring(""), of_big_endian, repeats_origin=True),
    Format(
        "share-group",
        ("__dlq.errors.",),
        _all(
            "__dlq.errors.",
            topic="topic",
            partition="partition",
            offset="offset",
            group="group",
            message="message",
            deliveries="delivery.count",
        ),
    ),
    Format(
        "streams",
        ("__streams.errors.",),
        _all(
            "__streams.errors.",
            topic="topic",
            partition="partition",
            offset="offset",
            error="exception",
            message="message",
        ),
    ),
)


def format_of(headers: Sequence[Header]) -> Format | None:
    """Return the format of the last program that added its headers; None if none did."""
    for name, _ in reversed(headers):
        for each in FORMATS:
            if each.adds(name):
                return each
    return None


def own_headers(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Return the headers that the record had before it failed."""
    return tuple(
        header
        for header in headers
        if header[0] != REDRIVES and not any(each.adds(header[0]) for each in FORMATS)
    )
