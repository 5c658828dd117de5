"""A home for Spark in the user's cache, from which its Python processes import faster.

Spark puts ``python/lib/pyspark.zip`` of its home first on their path. It holds source text only,
which each process compiles again: 0.35 s of CPU, in a dozen processes for a query that reads and
writes. In this home the zip file is a directory with a link to the installed package, whose modules
are compiled; all else are links, too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pyspark

from aioprod.testing.cache import SetupError, cache_dir

_ZIP: Final = "pyspark.zip"
_PYTHON: Final = "python"


def quick_spark_home() -> Path | None:
    """Return the home for the installed PySpark; make it if it is missing or out of date.

    Returns:
        The path, or None on Windows, where links need a privilege, and without a cache directory.
    """
    installed = Path(pyspark.__file__).resolve().parent
    if os.name != "posix" or not (installed / _PYTHON / "lib" / _ZIP).is_file():
        return None
    links = _links(installed)
    stated = "\n".join(f"{name} {target}" for name, target in links.items())
    digest = hashlib.sha256(stated.encode()).hexdigest()[:12]
    try:
        home = cache_dir() / f"spark-home-{pyspark.__version__}-{digest}"
        if not home.exists():
            _make(home, links)
        return home
    except (SetupError, OSError):
        return None


def _links(installed: Path) -> dict[str, Path]:
    """Return what each link of the home leads to."""
    parts = {part.name: part for part in sorted(installed.iterdir()) if part.name != _PYTHON}
    libraries = sorted((installed / _PYTHON / "lib").iterdir())
    inner = {f"{_PYTHON}/lib/{part.name}": part for part in libraries if part.name != _ZIP}
    return {**parts, **inner, f"{_PYTHON}/lib/{_ZIP}/pyspark": installed}


def _make(home: Path, links: dict[str, Path]) -> None:
    temporary = Path(tempfile.mkdtemp(dir=home.parent, prefix=".spark-home-"))
    try:
        for name, target in links.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).symlink_to(target)
        temporary.rename(home)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not home.exists():  # another process has made it
            raise
