"""Additions of newer PySpark versions, with replacements for older ones.

- 4.1: stream writers that get Arrow batches; older ones get each row as an object.
- 4.2: a time zone for Arrow's types; limits on the size of a micro-batch, and ``availableNow`` with
  several micro-batches.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

INSTALL_HINT = "python -m pip install 'aioprod[spark]'"
"""Installs all requirements of `aioprod.spark`."""

try:
    # Not imported here: the import takes a quarter of the time of a process that only plans.
    if find_spec("pyarrow") is None:
        raise ImportError("No module named 'pyarrow'", name="pyarrow")
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType, Row, StructType
except ImportError as error:
    raise ImportError(
        f"aioprod.spark needs PySpark 4.0 or newer, and pyarrow ({error}): {INSTALL_HINT}"
    ) from error

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    _STREAM_WRITERS_GET_ROWS = False
except ImportError:  # Spark 4.0
    _STREAM_WRITERS_GET_ROWS = True

    class DataSourceStreamArrowWriter(DataSourceStreamWriter):  # type: ignore[no-redef]
        """Replaces Spark 4.1's class. Its ``write`` gets rows, which `stream_batches` converts to
        Arrow batches.
        """


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
# Spark 4.1 requests the latest offset without arguments and never uses these.
except ImportError:

    class ReadLimit:  # type: ignore[no-redef]
        """Replaces Spark 4.2's class."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Replaces Spark 4.2's class."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """Replaces Spark 4.2's class."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """Replaces Spark 4.2's class."""

        def __init__(self, min_rows: int) -> None:
            self.min_rows = min_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replaces Spark 4.2's class."""


__all__ = [
    "INSTALL_HINT",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_type",
    "stream_batches",
]

ROWS_PER_BATCH = 10_000
"""The number of rows that newer versions put into an Arrow batch
(``spark.sql.execution.arrow.maxRecordsPerBatch``).
"""

# Without a time zone, newer versions use timestamps without a zone, and older ones always use UTC.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}
)

_COLUMNS = ("key", "value", "topic", "partition", "headers")


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type; timestamps are in UTC."""
    return to_arrow_type(kind, **_IN_UTC)


def stream_batches(rows_or_batches: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Return the argument of a stream writer's ``write`` as Arrow batches. Spark 4.0 passes rows,
    which are converted according to their declared ``schema``.

    Only the columns that a sink uses are kept, because others may have any type.
    """
    return batches_of_rows(rows_or_batches, schema) if _STREAM_WRITERS_GET_ROWS else rows_or_batches


def batches_of_rows(rows: Iterator[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Convert rows to Arrow batches of up to 10,000 rows."""
    import pyarrow as pa

    fields = [
        (position, field) for position, field in enumerate(schema.fields) if field.name in _COLUMNS
    ]
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        columns = {
            field.name: pa.array(
                [_plain(row[position]) for row in chunk], to_arrow_type(field.dataType)
            )
            for position, field in fields
        }
        yield pa.RecordBatch.from_pydict(columns)


def _plain(value: Any) -> Any:
    """Return a cell in the form that Arrow accepts: rows, including those in lists and maps, as
    dictionaries.
    """
    if isinstance(value, Row):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return [(name, _plain(each)) for name, each in value.items()]
    return value
