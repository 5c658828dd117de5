"""A Spark home in the user's cache from which Python processes import faster, and a class path on
which Java finds classes faster.

Spark puts ``python/lib/pyspark.zip`` of its home first on their path, and Py4J's zip file after it.
They contain only source code, which each process compiles again: 0.4 s of CPU, in a dozen processes
for a query that reads and writes. In this home, each zip file is a directory with a link to the
installed package, whose modules are compiled. All other entries are links, too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import py4j  # type: ignore[import-untyped]
import pyspark
from py4j.version import __version__ as py4j_version  # type: ignore[import-untyped]

from aioprod.testing.cache import SetupError, cache_dir

_ZIP: Final = "pyspark.zip"
_PY4J_ZIP: Final = f"py4j-{py4j_version}-src.zip"
_PYTHON: Final = "python"
_CLASS_PATH: Final = "spark.driver.extraClassPath"
# The jars with most of the classes that a session loads, largest number first. Java searches for a
# class in one jar after another, in arbitrary order, and Spark has 280.
_FIRST_JARS: Final = (
    "spark-catalyst_",
    "spark-core_",
    "scala-library-",
    "spark-sql_",
    "spark-sql-api_",
    "scala-reflect-",
    "log4j-core-",
    "jackson-databind-",
    "hadoop-client-api-",
    "parquet-column-",
    "parquet-jackson-",
    "janino-",
    "spark-config_",
    "spark-network-common_",
    "hadoop-client-runtime-",
    "netty-common-",
    "parquet-format-",
    "antlr4-runtime-",
    "netty-transport-4",
    "jackson-module-scala",
    "jackson-core-",
    "spark-common-utils_",
    "log4j-api-",
)


def quick_spark_home() -> Path | None:
    """Return the home for the installed PySpark; create it if it is missing or outdated.

    Returns:
        The path, or None on Windows, where links need a privilege, or without a cache directory.
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
    """Return the target of each link in the home."""
    parts = {part.name: part for part in sorted(installed.iterdir()) if part.name != _PYTHON}
    packages = {_ZIP: installed, _PY4J_ZIP: Path(py4j.__file__).resolve().parent}
    inner: dict[str, Path] = {}
    for part in sorted((installed / _PYTHON / "lib").iterdir()):
        package = packages.get(part.name)
        inside = f"/{package.name}" if package else ""
        inner[f"{_PYTHON}/lib/{part.name}{inside}"] = package or part
    return {**parts, **inner}


def _make(home: Path, links: dict[str, Path]) -> None:
    temporary = Path(tempfile.mkdtemp(dir=home.parent, prefix=".spark-home-"))
    try:
        for name, target in links.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).symlink_to(target)
        temporary.rename(home)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not home.exists():  # another process has created it
            raise


def class_path_settings() -> dict[str, str]:
    """Return the setting with which Java first searches the jars that contain most of the classes.

    Returns:
        The setting; empty if ``spark-defaults.conf`` has it, or without these jars.
    """
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    try:
        if _CLASS_PATH in defaults.read_text(encoding="utf-8", errors="replace"):
            return {}
    except OSError:
        pass  # no such file
    found = sorted((home / "jars").glob("*.jar"))
    first = [str(jar) for name in _FIRST_JARS for jar in found if jar.name.startswith(name)]
    return {_CLASS_PATH: os.pathsep.join(first)} if first else {}
