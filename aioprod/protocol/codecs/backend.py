"""The interface of a codec's library."""

from collections.abc import Callable
from typing import NamedTuple

from aioprod.protocol.codecs.faults import Buffer


class Backend(NamedTuple):
    """The functions of a codec, as implemented with one library.

    Attributes:
        compress: takes data and level.
        decompress: takes data and the limit on its decompressed size.
        errors: exceptions that ``decompress`` raises for invalid data, in addition to
            CorruptRecordError.
    """

    compress: Callable[[Buffer, int], bytes]
    decompress: Callable[[Buffer, int], bytes]
    errors: tuple[type[Exception], ...]
