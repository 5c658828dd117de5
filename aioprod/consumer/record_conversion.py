"""Converts fetched records for the application: deserializers first, then interceptors."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from aioprod.column_serialization import ColumnDeserializer
from aioprod.config.plugins import close_plugins
from aioprod.errors import KafkaError
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.preparation import MOST_ATTEMPTS, NotPrepared, unreadable
from aioprod.serializing import AnyDeserializer, Deserializer
from aioprod.types import ConsumerRecord
from aioprod.user_code import ENDS_PROGRAM

Records = list[ConsumerRecord]


class Unread(NamedTuple):
    """The first record that can't be deserialized, with the DeserializationError, KeyboardInterrupt
    or SystemExit; or NotPrepared, if its deserializer has to wait.

    Attributes:
        rest: that record and those after it, as they were given.
        error: the exception of the deserializer.
    """

    rest: Records
    error: BaseException


class UnreadRow(NamedTuple):
    """The offset of the first row that can't be deserialized; the error as that of ``Unread``."""

    offset: int
    error: BaseException


class Preparation:
    """The preparation that the deserializer of the next record waits for.

    Attributes:
        needed: the preparation to wait for, until the record is read again.
    """

    __slots__ = ("_attempts", "needed")

    def __init__(self) -> None:
        self.needed: NotPrepared | None = None
        self._attempts = 0  # that were completed, and the record needed another one

    def wait_for(self, needed: NotPrepared | None) -> None:
        """Note what the record's deserializer waits for."""
        self.needed = needed

    def converted(self) -> None:
        """Note that a record was converted."""
        self._attempts = 0

    def failure(self) -> BaseException | None:
        """Return why the record can't be converted, if its deserializer can't be prepared."""
        needed, self.needed = self.needed, None
        if needed is None:
            return None
        self._attempts += needed.is_done
        if self._attempts > MOST_ATTEMPTS:
            needed.fail(KafkaError(f"it asked to be prepared {self._attempts} times"))
        return needed.error


class RecordConverter:
    """The user's deserializers and interceptors. False if there are none: then records
    need no conversion.

    Args:
        key, value: the deserializers of the configuration, if any: they accept topic, headers and
            data.
        interceptors: the interceptors.
        remedy: ends the message of a DeserializationError; ``{}`` is the next offset.
    """

    def __init__(
        self,
        key: AnyDeserializer | None,
        value: AnyDeserializer | None,
        interceptors: ConsumerInterceptorChain,
        remedy: str = "seek to offset {} to skip it",
    ) -> None:
        self._key = cast("Deserializer | None", key)
        self._value = cast("Deserializer | None", value)
        self._interceptors = interceptors
        self._remedy = remedy
        self._closed = False
        given: dict[str, object] = {"key_deserializer": key, "value_deserializer": value}
        self._columns = {
            setting: each for setting, each in given.items() if isinstance(each, ColumnDeserializer)
        }

    @property
    def reads_columns(self) -> bool:
        """True if :meth:`convert_arrow` can be used."""
        return bool(self._columns) and self.refusal is None

    @property
    def refusal(self) -> str | None:
        """The reason why columns can't be converted; None if they can."""
        for setting, given in (
            ("key_deserializer", self._key),
            ("value_deserializer", self._value),
        ):
            if given is not None and setting not in self._columns:
                return (
                    f"{setting}={given!r}: getarrow needs one that reads columns, such as those of "
                    "aioprod.schema_registry; without one, keys and values are bytes"
                )
        return "interceptors need single records: leave them out" if self._interceptors else None

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

    def convert_arrow(self, parts: list[Any]) -> tuple[list[Any], UnreadRow | None]:
        """Return converted rows up to the first that can't be deserialized, and that one.

        Args:
            parts: record batches with the columns of ``getarrow``.
        """
        done: list[Any] = []
        for rows in parts:
            converted, error = self._convert_rows(rows)
            if converted.num_rows:
                done.append(converted)
            if error is not None:
                offset = rows.column("offset")[converted.num_rows].as_py()
                return done, UnreadRow(offset, error)
        return done, None

    def _convert_rows(self, rows: Any) -> tuple[Any, BaseException | None]:
        """Return converted rows, and why the row after them can't be converted."""
        found = rows
        for setting, deserializer in self._columns.items():
            name = setting.removesuffix("_deserializer")
            topic, headers = rows.column("topic")[0].as_py(), rows.column("headers")
            errors: Mapping[int, BaseException]
            try:
                column, errors = deserializer.deserialize_column(topic, headers, rows.column(name))
            except BaseException as error:
                column, errors = rows.column(name), {0: error}
            found = found.set_column(found.schema.get_field_index(name), name, column)
            if errors:
                first = min(errors)
                return found.slice(0, first), self._explained(setting, rows, first, errors[first])
        return found, None

    def _explained(
        self, setting: str, rows: Any, place: int, error: BaseException
    ) -> BaseException:
        from aioprod.consumer.arrow_tables import records_of_rows

        if isinstance(error, ENDS_PROGRAM):
            return error
        (record,) = records_of_rows(rows.slice(place, 1), -1)
        describe = partial(unreadable, setting, self._columns[setting], self._remedy, record)
        if isinstance(error, NotPrepared):
            error.describe = describe
            return error
        return describe(error)

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
            needed.describe = partial(unreadable, setting, used, remedy, record)
            return done, Unread(records[index:], needed)
        except BaseException as error:
            return done, Unread(records[index:], unreadable(setting, used, remedy, record, error))
        done.append(
            ConsumerRecord(
                topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch
            )
        )
    return done, None
