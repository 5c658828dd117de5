"""Spark's Python daemon for tasks, with aioprod preloaded: ``spark.python.daemon.module``.

Spark forks a process from its daemon for each task that runs at the same time, and ends those that
were idle for a minute. Otherwise each of them would import 300 modules, which takes 0.2 s of CPU.
Modules that start threads, such as pyarrow and numpy, are not preloaded, because threads do not
survive a fork.
"""

from __future__ import annotations

import gc
import importlib
import sys

# The modules that tasks import, except pyarrow.
MODULES = (
    "pyspark.worker",
    "aioprod.producer.producer",
    "aioprod.consumer.partition_reader",
    "aioprod.spark.exactly_once.decision_log",
    "aioprod.spark.exactly_once.order",
    "aioprod.spark.kept",
    "aioprod.spark.planning",
    "aioprod.spark.readers",
    "aioprod.spark.sink",
    "aioprod.spark.source",
)
_OPTIONAL = ("uvloop",)


def load() -> None:
    """Import the modules, and hide them from the garbage collector of the forked processes."""
    for name in (*MODULES, *_OPTIONAL):
        try:
            importlib.import_module(name)
        except ImportError as error:
            if name not in _OPTIONAL:  # tasks fail with the reason, if they need it
                print(f"aioprod.spark.worker_daemon: {error}", file=sys.stderr)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    load()
    manager()
