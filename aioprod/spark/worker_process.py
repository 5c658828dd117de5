"""The Python processes that Spark keeps and uses again for one task, plan or commit after the
other.
"""

from __future__ import annotations

import gc
import os

# Spark sets it for those of its processes that are used again.
_REUSED = "SPARK_REUSE_WORKER"
# What a write leaves behind is far less; PySpark, pandas and pyarrow are 90,000.
_MANY_OBJECTS = 20_000
# What is put aside is never collected, and users' functions run in these processes too.
_MOST_OBJECTS = 300_000


def settle() -> None:
    """Put aside what the process has loaded, out of the garbage collector's sight (`gc.freeze`).

    Spark's daemon collects garbage after each use. It takes 45 ms of CPU to look at all objects of
    the modules loaded, which are never garbage; four processes do so for each batch that is
    written, and as many for one that is read. It happens again only where as much was loaded since.
    Other processes than Spark's are left alone.
    """
    if (
        _REUSED in os.environ
        and len(gc.get_objects()) > _MANY_OBJECTS
        and gc.get_freeze_count() < _MOST_OBJECTS
    ):
        gc.collect()
        gc.freeze()
