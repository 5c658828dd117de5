"""CRC-32C, the checksum of record batches."""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c


def _load() -> object:
    """Import the function of the library crc32c.

    The library's package also contains a command line tool. Importing it takes 15 ms and 2 MB, a
    fifth of all imports of a producer. Therefore its extension module is loaded without the package
    if it is a file in the package's directory.
    """
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        found = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if found is not None and isinstance(found.loader, ExtensionFileLoader):
            extension = found.loader.create_module(found)
            found.loader.exec_module(extension)
            return extension.crc32c
    import crc32c

    return crc32c.crc32c


if not TYPE_CHECKING:
    crc32c = _load()
