"""Other versions of PySpark than the installed one, in the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from aioprod.testing.cache import cache_dir, locked
from tests.waiting import programs_per_core

INSTALL_TIMEOUT_S = 600.0


def pyspark_environment(version: str) -> dict[str, str]:
    """Return this process's environment, changed so that Python imports that version of PySpark.
    All other packages remain those that are installed.

    The first call downloads PySpark, about 450 MB.

    Raises:
        subprocess.CalledProcessError: if it can't be installed.
    """
    target = cache_dir() / f"pyspark-{version}"
    with locked(cache_dir() / f"pyspark-{version}.lock", timeout_s=20 * INSTALL_TIMEOUT_S):
        if not target.exists():
            _install(version, target)
    # A Spark home is that of another version.
    kept = {name: text for name, text in os.environ.items() if name != "SPARK_HOME"}
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**kept, "PYTHONPATH": os.pathsep.join([str(target), *paths])}


def _install(version: str, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", f"pyspark=={version}"]
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as temporary:
        made = Path(temporary, "packages")
        limit_s = INSTALL_TIMEOUT_S * programs_per_core()
        subprocess.run([*command, "--target", made], check=True, timeout=limit_s)
        made.rename(target)
