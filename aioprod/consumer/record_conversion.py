"""Converts fetched records for the application: deserializers first, then interceptors."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from aioprod.config.plugins import close_plugins
from aioprod.errors import DeserializationError
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.preparation import NotPrepared
from aioprod.serialization import Deserializer
from aioprod.types import ConsumerRecord, TopicPartition
from aioprod.user_code import ENDS_PROGRAM

Records = list[ConsumerRecord]


class Unread(NamedTuple):
    """The first record that can't be deserialized, with the DeserializationError, KeyboardInterrupt
    or SystemExit; or NotPrepared, if its deserializer has to wait.

    Attributes:
        rest: that record and those after it, as they were given.
        error: what the deserializer raised.
    """

    rest: Records
    error: BaseException


class RecordConverter:
    """The user's deserializers and interceptors. False if there are none: records need no
    conversion then.

    Args:
        key, value: the deserializers, if any.
        interceptors: the interceptors.
        remedy: ends the message of a DeserializationError; ``{}`` is the next offset.
    """

    def __init__(
        self,
        key: Deserializer | None,
        value: Deserializer | None,
        interceptors: ConsumerInterceptorChain,
        remedy: str = "seek to offset {} to skip it",
    ) -> None:
        self._key = key
        self._value = value
        self._interceptors = interceptors
        self._remedy = remedy
        self._closed = False

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None or bool(self._interceptors)

    def convert(self, records: Records) -> tuple[Records, Unread | None]:
        """Return the converted records up to the first that can't be deserialized, and that one."""
        unread: Unread | None = None
        if self._key is not None or self._value is not None:
            records, unread = _deserialize(self._key, self._value, self._remedy, records)
        if self._interceptors and records:
            records = self._interceptors.on_consume(records)
        return records, unread

    def close(self) -> None:
        """Close the interceptors and deserializers, once."""
        if not self._closed:
            self._closed = True
            self._interceptors.close()
            close_plugins((self._key, self._value))


def _deserialize(
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
    remedy: str,
    records: Records,
) -> tuple[Records, Unread | None]:
    """Deserialize records up to the first that can't be; return them, and that one."""
    done: Records = []
    for index, record in enumerate(records):
        topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch = record
        setting, used = "key_deserializer", key_deserializer
        try:
            if key_deserializer is not None:
                key = key_deserializer(topic, headers, key)
            setting, used = "value_deserializer", value_deserializer
            if value_deserializer is not None:
                value = value_deserializer(topic, headers, value)
        except ENDS_PROGRAM as error:
            return done, Unread(records[index:], error)
        except NotPrepared as needed:
            needed.describe = partial(_unreadable, setting, used, remedy, record)
            return done, Unread(records[index:], needed)
        except BaseException as error:
            return done, Unread(records[index:], _unreadable(setting, used, remedy, record, error))
        done.append(
            ConsumerRecord(
                topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch
            )
        )
    return done, None


def _unreadable(
    setting: str,
    deserializer: object,
    remedy: str,
    record: ConsumerRecord,
    error: BaseException,
) -> DeserializationError:
    name = getattr(deserializer, "__qualname__", type(deserializer).__name__)
    # The text of a UnicodeError would show the data.
    reason = (
        f"{type(error).__name__}: "
        f"{error.reason if isinstance(error, UnicodeDecodeError) else error}"
    )
    failure = DeserializationError(
        f"{setting}: {name} can't read the {setting.removesuffix('_deserializer')} of the "
        f"record at offset {record.offset} of "
        f"{record.topic}-{record.partition}: {reason}; {remedy.format(record.offset + 1)}",
        topic_partition=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
    failure.__cause__ = error
    return failure
