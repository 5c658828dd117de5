"""The Python processes that Spark reuses for one task, plan or commit after the other."""

from __future__ import annotations

import gc
import os

# Spark sets it in processes that it reuses.
_REUSED = "SPARK_REUSE_WORKER"
# A write leaves far fewer objects; PySpark, pandas and pyarrow have 90,000.
_MANY_OBJECTS = 20_000
# Frozen objects are never collected, and users' functions run in these processes too.
_MOST_OBJECTS = 300_000


def settle() -> None:
    """Hide the loaded modules from the garbage collector (`gc.freeze`).

    Spark's daemon collects garbage after each use of a process. It takes 45 ms of CPU to traverse
    the objects of loaded modules, which are never garbage, in four processes for each batch that is
    written, and as many for one that is read. Freezing is repeated only after as many objects were
    loaded again. Processes that Spark did not start are not changed.
    """
    if (
        _REUSED in os.environ
        and len(gc.get_objects()) > _MANY_OBJECTS
        and gc.get_freeze_count() < _MOST_OBJECTS
    ):
        gc.collect()
        gc.freeze()
