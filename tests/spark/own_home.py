"""A home for Spark in which ``local-cluster`` may keep its executors' files: it uses the directory
``work`` there.
"""

from __future__ import annotations

from pathlib import Path

from aioprod.spark.spark_home import quick_spark_home


def spark_home_in(directory: Path) -> Path:
    """Make one of links, in which Spark's Python processes start in half the CPU time."""
    quick = quick_spark_home()
    assert quick is not None
    home = directory / "spark-home"
    home.mkdir()
    for part in quick.iterdir():
        if part.name != "work":
            (home / part.name).symlink_to(part)
    return home
