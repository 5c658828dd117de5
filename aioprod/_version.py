"""Looks up the version of the installed package when ``aioprod.__version__`` is read."""

from __future__ import annotations

from importlib import metadata

try:
    __version__ = metadata.version("aioprod")
except metadata.PackageNotFoundError:
    # The zip file for Spark's executors has the modules without the package's metadata.
    __version__ = "0+unknown"
