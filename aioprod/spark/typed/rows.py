"""Decodes the values of the source's rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.errors import CorruptRecordError
from aioprod.logs import Logger, get_logger
from aioprod.spark.typed.decoder import MalformedValueError, ValueDecoder
from aioprod.spark.typed.options import RAW_VALUE, TypedOptions

_VALUE = "value"
_REASON = "the value does not fit value.schema"

log: Logger = get_logger(__name__)


class TypedRows:
    """Converts rows with binary values to rows with structs."""

    def __init__(self, options: TypedOptions) -> None:
        self._options = options
        self._decoder = ValueDecoder(options)

    def decode(
        self, rows: pa.RecordBatch, rejected: dict[int, str] | None = None
    ) -> pa.RecordBatch:
        """Return the rows with decoded values. With ``mode=dropmalformed``, malformed rows are
        dropped.

        Args:
            rejected: gets the reason of each malformed row by its number, instead of the log.

        Raises:
            CorruptRecordError: if a value is malformed with ``mode=failfast``; the message names
                the record.
        """
        raw = rows.column(_VALUE)
        try:
            structs, malformed = self._decoder.decode(raw)
        except MalformedValueError as error:
            raise CorruptRecordError(
                f"{_misfit(rows, error.row)} ({len(raw[error.row].as_py())} bytes), and "
                "mode=failfast"
            ) from None
        if rejected is not None:
            rejected |= dict.fromkeys(np.flatnonzero(malformed).tolist(), _REASON)
        elif malformed.any():
            log.warning(
                "mode=%s: %s; %d of %d values of this batch do not",
                self._options.mode,
                _misfit(rows, int(np.flatnonzero(malformed)[0])),
                malformed.sum(),
                len(malformed),
            )
        found = rows.set_column(rows.schema.get_field_index(_VALUE), _VALUE, structs)
        if self._options.include_raw:
            found = found.append_column(RAW_VALUE, raw)
        if self._options.mode == "dropmalformed" and malformed.any():
            found = found.take(pa.array(np.flatnonzero(~malformed)))
        return found


def _misfit(rows: pa.RecordBatch, row: int) -> str:
    topic, partition, offset = (
        rows.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    return f"{topic}-{partition}, offset {offset}: {_REASON}"
