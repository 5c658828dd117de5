"""Spark's Python daemon for tasks, with aioprod preloaded: ``spark.python.daemon.module``.

Spark forks a process from its daemon for each task that runs at the same time, and ends those that
were idle for a minute. Otherwise each of them would import 400 modules, which takes 0.4 s of CPU.

Threads do not survive a fork, so what starts threads must not be preloaded, with two exceptions
that handle forks themselves: OpenBLAS, which numpy loads, ends its threads before a fork and starts
them when it needs them; jemalloc, which pyarrow loads, does without its own in a forked process.
pyarrow makes new thread pools there. On macOS numpy may use Accelerate, which does not survive
a fork, so pyarrow is preloaded only on Linux.
"""

from __future__ import annotations

import gc
import importlib
import sys

from aioprod.spark.worker_process import postpone_pandas

# What tasks import, except what imports pyarrow.
MODULES = (
    "pyspark.worker",
    "aioprod.producer.producer",
    "aioprod.producer.transactions.manager",
    "aioprod.consumer.partition_reader",
    "aioprod.spark.exactly_once.decision_log",
    "aioprod.spark.exactly_once.order",
    "aioprod.spark.kept",
    "aioprod.spark.planning",
    "aioprod.spark.readers",
    "aioprod.spark.sink",
    "aioprod.spark.source",
)
ARROW_MODULES = (
    "pyarrow.compute",
    "aioprod.consumer.arrow_tables",
    "aioprod.producer.arrow",
    "aioprod.spark.exactly_once.task",
    "aioprod.spark.reading",
    "aioprod.spark.writing",
)
_OPTIONAL = ("uvloop",)


def load() -> None:
    """Import the modules, and hide them from the garbage collector of the forked processes."""
    for name in (*MODULES, *_OPTIONAL):
        _import(name)
    if sys.platform == "linux" and _import("pyarrow"):
        postpone_pandas()  # before a module uses pyarrow
        for name in ARROW_MODULES:
            _import(name)
    gc.collect()
    gc.freeze()


def _import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError as error:
        if name not in _OPTIONAL:  # tasks fail with the reason, if they need it
            print(f"aioprod.spark.worker_daemon: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    from pyspark.daemon import manager

    load()
    manager()
