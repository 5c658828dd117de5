"""The archive of the classes that Spark's JVM loads (class data sharing), in the user's cache. With
it a session starts in 60 % of the time, and a run of a minute takes a quarter less CPU of the JVM.

A run that ends its JVM itself makes it (`ArchiveMaker`), later ones only use it. A JVM ignores an
archive of another JVM or of other jars, but crashes on a truncated one: the name of the file has
its size, and it gets that name when it is whole.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Final

from pyspark import __version__ as spark_version
from pyspark.find_spark_home import _find_spark_home

from aioprod.testing.cache import SetupError, cache_dir
from aioprod.testing.java import find_java, home_of

_PREFIX: Final = "spark-"
_UNFINISHED: Final = ".spark-"
# Java warns of each class that it can't archive, and of an archive that does not fit.
_QUIET: Final = "-Xlog:cds*=off"
_OLD_S: Final = 3600
_logger = logging.getLogger(__name__)


def archive_options() -> str:
    """Return the Java options that use the archive; none if there is no archive for this Java and
    these jars.
    """
    try:
        archive = _find(_stem())
    except (SetupError, OSError):
        return ""
    return "" if archive is None else f'"-XX:SharedArchiveFile={archive}" {_QUIET}'


class ArchiveMaker:
    """Makes the archive with the JVM of a run, which writes it when it ends.

    ``options`` are the Java options that use the archive, or make it. After the JVM has ended, call
    `ended`.
    """

    def __init__(self) -> None:
        self.options = archive_options()
        self._made: Path | None = None
        if self.options:
            return
        try:
            self._stem = _stem()
            _remove_unfinished()
            self._made = cache_dir() / f"{_UNFINISHED}{os.getpid()}.jsa"
        except (SetupError, OSError) as error:
            _logger.debug("Spark starts without a class archive, which takes longer: %s", error)
            return
        self.options = f'"-XX:ArchiveClassesAtExit={self._made}" {_QUIET}'

    @property
    def makes(self) -> bool:
        """Tell whether the JVM writes an archive when it ends, which takes some seconds."""
        return self._made is not None

    def ended(self, exit_status: int) -> None:
        """Give the archive its name, and remove those for another Java or other jars. If Java was
        killed, remove what it has written.
        """
        if self._made is None:
            return
        try:
            if exit_status != 0:
                self._made.unlink(missing_ok=True)
            elif self._made.exists():  # else Java lacks the archive on which this one builds
                self._keep(self._made)
        except (SetupError, OSError) as error:
            _logger.debug("the class archive of Spark is not kept: %s", error)

    def _keep(self, made: Path) -> None:
        size = made.stat().st_size
        for old in cache_dir().glob(f"{_PREFIX}*.jsa"):
            old.unlink(missing_ok=True)  # a JVM that has mapped it keeps it
        made.replace(cache_dir() / f"{self._stem}-{size}.jsa")


def _remove_unfinished() -> None:
    """Remove what runs have left that were killed together with their JVM."""
    for left in cache_dir().glob(f"{_UNFINISHED}*.jsa"):
        if time.time() - left.stat().st_mtime > _OLD_S:
            left.unlink(missing_ok=True)


def _stem() -> str:
    """Return the beginning of the name: it changes with Java and the jars."""
    own_classes = home_of(find_java()) / "lib" / "modules"
    # Java compares the paths, too, so they are those that it is started with.
    jars = sorted(Path(_find_spark_home(), "jars").glob("*.jar"))
    good_for = "\n".join(
        f"{path} {state.st_size} {state.st_mtime_ns}"
        for path in (own_classes, *jars)
        for state in (path.stat(),)
    )
    digest = hashlib.sha256(good_for.encode()).hexdigest()[:12]
    return f"{_PREFIX}{spark_version}-{digest}"


def _find(stem: str) -> Path | None:
    for path in cache_dir().glob(f"{stem}-*.jsa"):
        if path.stem == f"{stem}-{path.stat().st_size}":
            return path
    return None
