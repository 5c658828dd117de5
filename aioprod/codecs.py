"""The table of compression codecs: what the parts of a client and of the embedded broker need to
know about each.

A new codec is a member of :class:`Codec`, and a row with its functions in
``aioprod/protocol/compression.py``. Settings, threads of the producer, pushes of metrics, and the
embedded broker follow the table.
"""

from enum import IntEnum
from typing import Any, NamedTuple

from aioprod.errors import ConfigError


class Levels(NamedTuple):
    """The compression levels of a codec (KIP-390: ``compression.gzip.level`` and so on).

    Attributes:
        default: the default of Kafka.
        ranges: the allowed levels: lowest and highest of each range.
        note: a note for users.
    """

    default: int
    ranges: tuple[tuple[int, int], ...]
    note: str = ""

    def allow(self, level: Any) -> bool:
        """Return whether this is an allowed level."""
        return type(level) is int and any(low <= level <= high for low, high in self.ranges)

    @property
    def words(self) -> str:
        """The allowed levels in words."""
        return " or ".join(
            f"{low}" if low == high else f"{low} to {high}" for low, high in self.ranges
        )


class Facts(NamedTuple):
    """The properties that differ between codecs; see :class:`Codec`."""

    levels: Levels | None = None
    thread_from: int = 0
    thread_from_at_high_level: int = 8 << 10
    produce_version: int = 0
    telemetry_rank: int = 0


class Codec(IntEnum):
    """A compression codec, with its number in the attributes of a batch.

    Attributes:
        levels: its levels, or None if it has none.
        thread_from: size in bytes from which a batch is compressed in a thread. Compressing that
            much takes 0.4 ms or more, and using a thread costs 0.1 ms of the loop's time. Measured
            on JSON, in ns per byte: snappy and lz4 2.4, zstd 6.6, gzip 23.
        thread_from_at_high_level: the same for levels above the default.
        produce_version: the first version of Produce that may carry it.
        telemetry_rank: its place in the order in which Kafka's brokers prefer codecs for metrics
            that clients push (KIP-714).
    """

    levels: Levels | None
    thread_from: int
    thread_from_at_high_level: int
    produce_version: int
    telemetry_rank: int

    def __new__(cls, number: int, facts: Facts = Facts()) -> "Codec":  # noqa: B008
        codec = int.__new__(cls, number)
        codec._value_ = number
        for name, value in facts._asdict().items():
            setattr(codec, name, value)
        return codec

    NONE = 0
    GZIP = (
        1,
        Facts(
            Levels(-1, ((-1, -1), (1, 9)), "-1 is the default of zlib."),
            thread_from=16 << 10,
            thread_from_at_high_level=16 << 10,
            telemetry_rank=3,
        ),
    )
    SNAPPY = 2, Facts(thread_from=192 << 10, telemetry_rank=4)
    LZ4 = 3, Facts(Levels(9, ((1, 17),)), thread_from=192 << 10, telemetry_rank=2)
    ZSTD = (
        4,
        Facts(
            Levels(3, ((-131_072, 22),)),
            thread_from=64 << 10,
            produce_version=7,
            telemetry_rank=1,
        ),
    )

    @property
    def label(self) -> str:
        """The name in settings (``compression.type``)."""
        return self.name.lower()

    @classmethod
    def from_name(cls, name: str) -> "Codec":
        """Return the codec of a ``compression.type``, such as ``zstd``.

        Raises:
            ConfigError: if there is no such codec.
        """
        codec = CODECS.get(name)
        if codec is None:
            raise ConfigError(f"compression_type {name!r} is not one of {', '.join(CODECS)}")
        return codec

    def check_level(self, name: str, level: Any) -> None:
        """Check a compression level.

        Args:
            name: the setting, for the error.
            level: the level.

        Raises:
            ConfigError: if the codec has no such level.
        """
        if self.levels is None:
            raise ConfigError(f"{name}={level!r}: {self.label} has no levels")
        if not self.levels.allow(level):
            raise ConfigError(
                f"{name}={level!r}: the level of {self.label} must be {self.levels.words}"
            )


#: All codecs by their names in settings.
CODECS = {codec.label: codec for codec in Codec}
#: The codecs that compress, in the order in which Kafka's brokers prefer them for pushed metrics.
TELEMETRY_CODECS = tuple(
    sorted((codec for codec in Codec if codec), key=lambda codec: codec.telemetry_rank)
)
