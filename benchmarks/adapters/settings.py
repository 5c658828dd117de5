"""The settings that all clients share, and the records that they are given."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice

_SEED = 20_240
_LETTERS = (string.ascii_letters + string.digits + "-_").encode()
_FEWEST_VALUES, _MOST_VALUES = 16, 1_009
_BYTES_OF_VALUES = 1 << 20
_SIZES = 10_007
_SENTENCE = (
    b"Records of one topic look alike: names that come again in each, and between them what is "
    b"new. "
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in bytes, times in milliseconds, as Kafka names them. Producers are idempotent where
    acks is ``all``.
    """

    bootstrap_servers: str
    acks: str = "all"
    linger_ms: float = 5
    batch_size: int = 65_536
    compression_type: str = "none"
    buffer_memory: int = 32 << 20

    @property
    def idempotent(self) -> bool:
        """Whether the broker shall tell duplicates; Kafka allows it with acks=all only."""
        return self.acks == "all"


@dataclass(frozen=True, slots=True)
class Load:
    """Records to be sent.

    Attributes:
        records: how many.
        value_size: bytes of each value. The first half is the same in all of them, the second is
            not: they compress to about half.
        keys: distinct keys, used in rotation; 0 for none.
        headers: headers of each record.
        sizes_vary: whether values have from half to one and a half times that many bytes, at
            random; the second half of the largest differs then.
    """

    topic: str
    records: int
    value_size: int = 100
    keys: int = 0
    headers: int = 0
    sizes_vary: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        """Of the smallest and of the largest value."""
        return (
            (self.value_size // 2, self.value_size * 3 // 2)
            if self.sizes_vary
            else (self.value_size, self.value_size)
        )

    def values(self) -> Iterator[bytes]:
        """One value a record."""
        least, most = self.sizes
        values = cycle(different_values(most))
        if not self.sizes_vary:
            return islice(values, self.records)
        return (
            value[:size]
            for value, size in zip(
                values, islice(cycle(different_sizes(least, most)), self.records), strict=False
            )
        )

    def keyed_values(self) -> Iterator[tuple[bytes | None, bytes]]:
        """A key and a value a record; the key is None where there are no keys."""
        return zip(
            cycle(different_keys(self.keys) if self.keys else (None,)), self.values(), strict=False
        )

    def each_headers(self) -> list[tuple[str, bytes]]:
        """The headers of every record."""
        return [(f"header-{number}", b"value of %d" % number) for number in range(self.headers)]


# Cached, so that they are made while a client is warmed up, and not while it is measured.
@cache
def different_values(size: int) -> tuple[bytes, ...]:
    """The values that are sent in rotation: ASCII without line ends, the same in every process."""
    chance = random.Random(_SEED)
    half = size // 2
    same = (_SENTENCE * (half // len(_SENTENCE) + 1))[:half]
    count = max(_FEWEST_VALUES, min(_MOST_VALUES, _BYTES_OF_VALUES // max(1, size)))
    return tuple([same + bytes(chance.choices(_LETTERS, k=size - half)) for _ in range(count)])


@cache
def different_sizes(least: int, most: int) -> tuple[int, ...]:
    """The sizes that values have in rotation where they vary; more than there are values, so that
    each has all of them.
    """
    chance = random.Random(_SEED)
    return tuple([chance.randint(least, most) for _ in range(_SIZES)])


@cache
def different_keys(count: int) -> tuple[bytes, ...]:
    """The keys that are sent in rotation."""
    return tuple([b"key %06d" % number for number in range(count)])
