"""The settings and records that all clients share."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice

_SEED = 20_240
_LETTERS = (string.ascii_letters + string.digits + "-_").encode()
_MIN_VALUES, _MAX_VALUES = 16, 1_009
_BYTES_OF_VALUES = 1 << 20
_SIZES = 10_007
_SENTENCE = (
    b"Records of one topic look alike: names that come again in each, and between them what is "
    b"new. "
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Kafka's settings, with sizes in bytes. Producers are idempotent if acks is ``all``.

    Attributes:
        ca_file: the authority to trust, a PEM file; if set, clients that support it use TLS.
        own_defaults: leave idempotence, linger and sizes as the client has them by default.
    """

    bootstrap_servers: str
    acks: str = "all"
    linger_ms: float = 5
    batch_size: int = 65_536
    compression_type: str = "none"
    buffer_memory: int = 32 << 20
    own_defaults: bool = False
    ca_file: str = ""

    @property
    def idempotent(self) -> bool:
        """True if idempotence is enabled, which requires acks=all."""
        return self.acks == "all"


@dataclass(frozen=True, slots=True)
class Load:
    """Records to send.

    Attributes:
        records: the number of records.
        value_size: the size of each value in bytes. The first half is equal in all, the second half
            differs, so values compress to about half.
        keys: the number of keys, used in rotation; 0 for no keys.
        headers: the number of headers of each record.
        sizes_vary: value sizes are random, from 0.5 to 1.5 times ``value_size``.
        group: how many records are sent before their deliveries are awaited.
    """

    topic: str
    records: int
    value_size: int = 100
    keys: int = 0
    headers: int = 0
    sizes_vary: bool = False
    group: int = 50_000

    @property
    def sizes(self) -> tuple[int, int]:
        """The minimum and maximum size of the values."""
        return (
            (self.value_size // 2, self.value_size * 3 // 2)
            if self.sizes_vary
            else (self.value_size, self.value_size)
        )

    def values(self) -> Iterator[bytes]:
        """Return the value of each record."""
        smallest, largest = self.sizes
        values = cycle(different_values(largest))
        if not self.sizes_vary:
            return islice(values, self.records)
        return (
            value[:size]
            for value, size in zip(
                values,
                islice(cycle(different_sizes(smallest, largest)), self.records),
                strict=False,
            )
        )

    def keyed_values(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Return the key and value of each record; keys are None if ``keys`` is 0."""
        return zip(
            cycle(different_keys(self.keys) if self.keys else (None,)), self.values(), strict=False
        )

    def each_headers(self) -> list[tuple[str, bytes]]:
        """Return the headers of each record."""
        return [(f"header-{number}", b"value of %d" % number) for number in range(self.headers)]


# Cached, so that the warm-up creates them, not the measurement.
@cache
def different_values(size: int) -> tuple[bytes, ...]:
    """Return the values to send in rotation: ASCII without line breaks, the same in each run."""
    rng = random.Random(_SEED)
    half = size // 2
    same = (_SENTENCE * (half // len(_SENTENCE) + 1))[:half]
    count = max(_MIN_VALUES, min(_MAX_VALUES, _BYTES_OF_VALUES // max(1, size)))
    return tuple([same + bytes(rng.choices(_LETTERS, k=size - half)) for _ in range(count)])


@cache
def different_sizes(smallest: int, largest: int) -> tuple[int, ...]:
    """Return sizes of values, more than there are values, so that each value has many sizes."""
    rng = random.Random(_SEED)
    return tuple([rng.randint(smallest, largest) for _ in range(_SIZES)])


@cache
def different_keys(count: int) -> tuple[bytes, ...]:
    """Return the keys to send in rotation."""
    return tuple([b"key %06d" % number for number in range(count)])
