"""From records as they are stored to what the application gets: deserializers, then
interceptors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aioprod.config.consumer import ConsumerConfig
from aioprod.errors import DeserializationError
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.serialization import Deserializer
from aioprod.types import ConsumerRecord, TopicPartition
from aioprod.user_code import ENDS_PROGRAM

Records = list[ConsumerRecord]


class Unread(NamedTuple):
    """The first record that can't be read, and why: DeserializationError, or an end of program."""

    record: ConsumerRecord
    error: BaseException


def finisher(
    config: ConsumerConfig, interceptors: ConsumerInterceptorChain
) -> Callable[[Records], tuple[Records, Unread | None]] | None:
    """What is done to records before they are handed out; None where there is nothing to do."""
    key, value = config.key_deserializer, config.value_deserializer

    def finish(records: Records) -> tuple[Records, Unread | None]:
        unread: Unread | None = None
        if key is not None or value is not None:
            records, unread = _deserialize(key, value, records)
        return (interceptors.on_consume(records) if interceptors and records else records), unread

    return finish if key is not None or value is not None or interceptors else None


def _deserialize(
    key_deserializer: Deserializer | None, value_deserializer: Deserializer | None, records: Records
) -> tuple[Records, Unread | None]:
    """The records up to the first that can't be read, and that one."""
    done: Records = []
    for record in records:
        topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch = record
        setting, used = "key_deserializer", key_deserializer
        try:
            if key_deserializer is not None:
                key = key_deserializer(topic, headers, key)
            setting, used = "value_deserializer", value_deserializer
            if value_deserializer is not None:
                value = value_deserializer(topic, headers, value)
        except ENDS_PROGRAM as error:
            return done, Unread(record, error)
        except BaseException as error:
            return done, Unread(record, _unreadable(setting, used, record, error))
        done.append(
            ConsumerRecord(
                topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch
            )
        )
    return done, None


def _unreadable(
    setting: str, deserializer: object, record: ConsumerRecord, error: BaseException
) -> DeserializationError:
    name = getattr(deserializer, "__qualname__", type(deserializer).__name__)
    # A UnicodeError's own text shows the data.
    reason = (
        f"{type(error).__name__}: "
        f"{error.reason if isinstance(error, UnicodeDecodeError) else error}"
    )
    failure = DeserializationError(
        f"{setting}: {name} can't read the {setting.removesuffix('_deserializer')} of the "
        f"record at offset {record.offset} of "
        f"{record.topic}-{record.partition}: {reason}; seek to offset {record.offset + 1} to "
        "leave it out",
        topic_partition=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
    failure.__cause__ = error
    return failure
