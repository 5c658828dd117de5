"""The arguments and results of handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from aioprod import ConsumerRecord, Deserializer, ProducerRecord, TopicPartition
from aioprod.preparation import MOST_ATTEMPTS, NotPrepared, unreadable
from aioprod.processing.config import CommonConfig
from aioprod.processing.errors import ProcessingError
from aioprod.processing.failure_headers import Origin, origin_of
from aioprod.processing.scheduling import Item
from aioprod.public_module import set_module
from aioprod.types import Header, Headers, K_co, V_co
from aioprod.user_code import ENDS_PROGRAM

K = TypeVar("K")
V = TypeVar("V")


@set_module("aioprod.processing")
class Record(NamedTuple, Generic[K_co, V_co]):
    """A record for a handler.

    A record from a retry topic has the place, timestamp and headers that it had in its first topic.


    Attributes:
        topic: the topic.
        partition: the partition number.
        offset: the offset in the partition.
        timestamp: milliseconds since 1970.
        key, value: bytes, or the results of the deserializers; None for a null.
        headers: (name, bytes or None) pairs, in order; names may repeat.
        attempt: 1 in the first call of the handler with the record, and one more for each retry; in
            a share group, since its last delivery.
        delivery_count: how often it was delivered to the share group; 0 in a consumer group.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K_co
    value: V_co
    headers: tuple[Header, ...]
    attempt: int = 1
    delivery_count: int = 0


Outputs: TypeAlias = ProducerRecord | Iterable[ProducerRecord] | None
"""The result of a handler: records to send, or None."""

Handler: TypeAlias = Callable[[Record[K, V]], Awaitable[Outputs]]
BatchHandler: TypeAlias = Callable[[Sequence[Record[K, V]]], Awaitable[Outputs]]
AnyHandler: TypeAlias = Callable[[Any], Awaitable[Outputs]]


def outputs_of(returned: object) -> tuple[ProducerRecord, ...]:
    """Return a handler's result as records.

    Raises:
        TypeError: if it is not None, a ProducerRecord, or an iterable of these.
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


class HandlerCalls:
    """Creates the argument of a call of the handler.

    Args:
        config: has the retry topics.
        handler: takes a Record, or with ``batch_records`` a list of these.
        batch_records: the maximum number of records in a call; None for a handler of single ones.
        deserializers: for keys and for values.

    Attributes:
        handler: the argument of the same name.
        of_batches: whether the handler takes a list.
        most_records: the maximum number of records in a call.
    """

    def __init__(
        self,
        config: CommonConfig,
        handler: AnyHandler,
        batch_records: int | None,
        deserializers: tuple[Deserializer | None, Deserializer | None],
    ) -> None:
        self.handler = handler
        self.of_batches: bool = batch_records is not None
        self.most_records: int = batch_records or 1
        self._deserializers = deserializers
        self._retry_topics = {retry.topic for retry in config.policy.retry_topics}

    async def argument(self, items: Sequence[Item]) -> Any:
        """Convert records for the handler.

        Raises:
            DeserializationError: if a deserializer fails.
            ProcessingError: if a deserializer never becomes ready.
        """
        try:
            records = [self._read(item) for item in items]
        except NotPrepared:
            records = [await self._read_prepared(item) for item in items]
        return records if self.of_batches else records[0]

    def _read(self, item: Item) -> Record[Any, Any]:
        record = item.record
        origin: ConsumerRecord | Origin = record
        item.attempt = item.attempt_here
        if record.topic in self._retry_topics:
            origin = earlier = origin_of(record, is_retry=True)
            item.attempt += earlier.attempts
        of_key, of_value = self._deserializers
        headers = origin.headers
        return Record(
            origin.topic,
            origin.partition,
            origin.offset,
            origin.timestamp,
            record.key if of_key is None else _deserialized("key", of_key, record, headers),
            record.value if of_value is None else _deserialized("value", of_value, record, headers),
            headers,
            item.attempt,
            item.delivery_count,
        )

    async def _read_prepared(self, item: Item) -> Record[Any, Any]:
        """Convert a record whose deserializers may have to wait. An error of the wait counts as a
        failure of the handler, and may not occur again in a retry.
        """
        for _ in range(MOST_ATTEMPTS):
            try:
                return self._read(item)
            except NotPrepared as needed:
                await needed.prepare()
                if needed.error is not None:
                    raise needed.error from None
        raise ProcessingError(
            f"no deserializer ready after {MOST_ATTEMPTS} attempts for {place_of(item.record)}",
            TopicPartition(item.record.topic, item.record.partition),
            item.record.offset,
        )


def place_of(record: ConsumerRecord) -> str:
    return f"the record at offset {record.offset} of {record.topic}-{record.partition}"


def _deserialized(
    what: str, deserializer: Deserializer, record: ConsumerRecord, headers: Headers
) -> Any:
    try:
        return deserializer(record.topic, headers, getattr(record, what))
    except (*ENDS_PROGRAM, NotPrepared):
        raise
    except BaseException as error:
        raise unreadable(f"{what}_deserializer", deserializer, "", record, error) from error
