"""Converts names of headers to and from Arrow text columns, which must be UTF-8. Imports pyarrow,
which is optional, so import this module on demand.
"""

from __future__ import annotations

import re

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.header_names import (
    PRIVATE_IN_UTF8,
    column_text,
    decode_name,
    encode_name,
    name_in_column,
)
from aioprod.protocol.arrow_building import bytes_column


def text_of_names(names: pa.BinaryArray) -> pa.StringArray:
    """Return the texts of names, without nulls; see `aioprod.header_names`."""
    if not _has_private(names):
        try:
            return names.cast(pa.string())
        except pa.ArrowInvalid:  # a name is not UTF-8
            pass
    texts = [column_text(decode_name(name)).encode() for name in names.to_pylist()]
    return bytes_column(texts).view(pa.string())


def names_of_text(texts: pa.BinaryArray) -> pa.BinaryArray:
    """Return the names for these texts: the inverse of `text_of_names`."""
    if not _has_private(texts):
        return texts
    return bytes_column(
        [
            encode_name(name_in_column(decode_name(text)))
            if re.search(PRIVATE_IN_UTF8, text)
            else text
            for text in texts.to_pylist()
        ]
    )


def _has_private(names: pa.BinaryArray) -> bool:
    data = names.buffers()[2]
    return data is not None and re.search(PRIVATE_IN_UTF8, memoryview(data)) is not None
