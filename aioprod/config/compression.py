"""Compression codecs, their levels, and the settings that name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aioprod.errors import ConfigError

TopicCompression = Mapping[str, str | tuple[str, int]]
"""Topic -> codec, or (codec, level)."""

#: Codecs (``compression.type``), each with a function that tells whether it has a level.
CODECS: Mapping[str, Callable[[int], bool]] = {
    "none": lambda level: False,
    "gzip": lambda level: level == -1 or 1 <= level <= 9,
    "snappy": lambda level: False,
    "lz4": lambda level: 1 <= level <= 17,
    "zstd": lambda level: -131_072 <= level <= 22,
}
#: The levels of the codecs that have any, in words.
LEVELS: Mapping[str, str] = {
    "gzip": "-1 (the default of zlib) or 1 to 9",
    "lz4": "1 to 17",
    "zstd": "-131072 to 22",
}


class _FixedMapping(Mapping[str, str | tuple[str, int]]):
    """A mapping that can't be changed, but copied, pickled and hashed, unlike MappingProxyType."""

    __slots__ = ("_items",)

    def __init__(self, items: TopicCompression) -> None:
        self._items = dict(items)

    def __getitem__(self, topic: str) -> str | tuple[str, int]:
        return self._items[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def check_level(name: str, codec: str, level: Any) -> None:
    """Check a compression level.

    Args:
        name: the setting, for the error.
        codec: the codec that the level is for.
        level: the level.

    Raises:
        ConfigError: if the codec has no such level.
    """
    if codec not in LEVELS:
        raise ConfigError(f"{name}={level!r}: {codec} has no levels")
    if isinstance(level, bool) or not isinstance(level, int) or not CODECS[codec](level):
        raise ConfigError(f"{name}={level!r}: the level of {codec} must be {LEVELS[codec]}")


def level_of(codec: str) -> Callable[[str, Any], Any]:
    """Make a check of the level of ``codec``."""

    def check(name: str, level: Any) -> Any:
        check_level(name, codec, level)
        return level

    return check


def check_topic_compression(name: str, value: Any) -> TopicCompression:
    """Check the codecs of single topics, and keep them in a mapping that can't be changed."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}={value!r}: must map topics to a codec or (codec, level)")
    checked: dict[str, str | tuple[str, int]] = {}
    for topic, wanted in value.items():
        match topic, wanted:
            case str(), str() as codec if codec in CODECS:
                checked[topic] = codec
            case str(), (str() as codec, level) if codec in CODECS:
                check_level(f"{name}[{topic!r}]", codec, level)
                checked[topic] = codec, level
            case _:
                raise ConfigError(
                    f"{name}[{topic!r}]={wanted!r}: must be one of {', '.join(CODECS)}, or "
                    "(codec, level)"
                )
    return _FixedMapping(checked)
