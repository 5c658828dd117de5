"""Serializers and deserializers of whole columns of Arrow. Needs no pyarrow itself."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

from aioprod.errors import SerializationError
from aioprod.foreign_text import fault_of
from aioprod.preparation import NotPrepared
from aioprod.types import Header
from aioprod.user_code import ENDS_PROGRAM


class EncodedColumn(NamedTuple):
    """A serialized column.

    Attributes:
        data: a ``pyarrow.ChunkedArray`` of binary.
        headers: headers of the records that are not null.
    """

    data: Any
    headers: tuple[Header, ...] = ()


@runtime_checkable
class ColumnSerializer(Protocol):
    """A serializer that ``send_arrow`` can use: it serializes columns of Arrow as it does records,
    to the same bytes.
    """

    def column_encoder(self, topic: str) -> Callable[[Any], EncodedColumn]:
        """Return what serializes a ``pyarrow.ChunkedArray``. It may run in a thread.

        Raises:
            NotPrepared: if it has to wait.
        """
        ...


class DecodedColumn(NamedTuple):
    """A deserialized column.

    Attributes:
        data: a ``pyarrow.Array``.
        errors: by row, the reason why it can't be read; its value is null.
    """

    data: Any
    errors: Mapping[int, Exception]


@runtime_checkable
class ColumnDeserializer(Protocol):
    """A deserializer that ``getarrow`` can use."""

    def deserialize_column(self, topic: str, headers: Any, column: Any) -> DecodedColumn:
        """Deserialize a ``pyarrow.BinaryArray``. Columns that it returns for a topic have the same
        type, unless it raised NotPrepared in between.

        Args:
            topic: topic of the records.
            headers: a list array of structs of ``key`` and ``value``, or None.
            column: the keys or values.

        Raises:
            NotPrepared: if it has to wait.
        """
        ...


def column_encoder(
    name: str, serializer: ColumnSerializer, topic: str
) -> Callable[[Any], EncodedColumn]:
    """Return what serializes a column.

    Args:
        name: ``"key"`` or ``"value"``, for the error.
        serializer, topic: as the serializer takes it.

    Raises:
        SerializationError: if it fails.
        NotPrepared: if the serializer raised it; ``prepare`` it, and try again.
    """
    try:
        return serializer.column_encoder(topic)
    except ENDS_PROGRAM:
        raise
    except NotPrepared as needed:
        needed.describe = partial(column_failure, name, topic)
        raise
    except BaseException as error:
        raise column_failure(name, topic, error) from error


def column_failure(name: str, topic: str, error: BaseException) -> SerializationError:
    """Return the error of a column that can't be serialized."""
    failure = SerializationError(
        f"{name}_serializer can't serialize the column {name!r} for topic {topic!r}: "
        f"{type(error).__name__}: {fault_of(error)}"
    )
    failure.__cause__ = error
    return failure
