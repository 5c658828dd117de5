"""What handlers get and return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from aioprod import ProducerRecord
from aioprod.public_module import set_module
from aioprod.types import Header

K = TypeVar("K")
V = TypeVar("V")


@set_module("aioprod.processing")
class Record(NamedTuple, Generic[K, V]):
    """A record for a handler.

    A record that was in a retry topic has the place, the timestamp and the headers that it had in
    its first topic.

    Attributes:
        topic: the topic.
        partition: the partition number.
        offset: the offset in the partition.
        timestamp: milliseconds since 1970.
        key, value: bytes, or what the deserializers return; None is a null.
        headers: (name, bytes or None) pairs, in order; names may repeat.
        attempt: 1 for the first call of the handler with the record, and one more for each retry;
            in a share group since its last delivery.
        delivery_count: how often the share group has got the record; 0 in a consumer group.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K
    value: V
    headers: tuple[Header, ...]
    attempt: int = 1
    delivery_count: int = 0


Outputs: TypeAlias = ProducerRecord | Iterable[ProducerRecord] | None
"""What a handler returns: records to send, or None."""

Handler: TypeAlias = Callable[[Record[K, V]], Awaitable[Outputs]]
BatchHandler: TypeAlias = Callable[[Sequence[Record[K, V]]], Awaitable[Outputs]]
AnyHandler: TypeAlias = Callable[[Any], Awaitable[Outputs]]


def outputs_of(returned: object) -> tuple[ProducerRecord, ...]:
    """Return what a handler returned as records.

    Raises:
        TypeError: if it is neither None, nor a ProducerRecord, nor an iterable of these.
    """
    if returned is None:
        return ()
    if isinstance(returned, ProducerRecord):
        return (returned,)
    if isinstance(returned, Iterable):
        outputs = tuple(returned)
        if all(isinstance(output, ProducerRecord) for output in outputs):
            return outputs
    raise TypeError(
        f"the handler returned {type(returned).__name__}: return None, a ProducerRecord, or an "
        "iterable of ProducerRecord"
    )
