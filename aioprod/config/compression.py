"""The setting ``topic_compression``: codecs by topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aioprod.codecs import CODECS
from aioprod.errors import ConfigError

TopicCompression = Mapping[str, str | tuple[str, int]]
"""Topic -> codec, or (codec, level)."""


class _FixedMapping(Mapping[str, str | tuple[str, int]]):
    """An immutable mapping. Unlike MappingProxyType, it can be copied, pickled and hashed."""

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


def check_topic_compression(name: str, value: Any) -> TopicCompression:
    """Check the codecs of topics, and return them as an immutable mapping."""
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}={value!r}: must map topics to a codec or (codec, level)")
    checked: dict[str, str | tuple[str, int]] = {}
    for topic, wanted in value.items():
        match topic, wanted:
            case str(), str() as codec if codec in CODECS:
                checked[topic] = codec
            case str(), (str() as codec, level) if codec in CODECS:
                CODECS[codec].check_level(f"{name}[{topic!r}]", level)
                checked[topic] = codec, level
            case _:
                raise ConfigError(
                    f"{name}[{topic!r}]={wanted!r}: must be one of {', '.join(CODECS)}, or "
                    "(codec, level)"
                )
    return _FixedMapping(checked)
