"""The parts that all Spark applications share. `aioprod pipeline new` creates a project that uses
them.

- running.py: starts streaming queries, waits for their end, and returns why one failed as a line
- outputs.py: dead letters with reason and origin
- watching.py: the page, alerts and exit status of a command, from its command line
- table.py: progress as a table in the terminal
"""

from aioprod.spark.foreach_batch import query_id, write_once
from aioprod.spark.pipeline.outputs import dead_letters
from aioprod.spark.pipeline.running import failure_reason, reason_of, run_queries
from aioprod.spark.pipeline.watching import Watch, add_page, add_watching, served_page, watched

__all__ = [
    "Watch",
    "add_page",
    "add_watching",
    "dead_letters",
    "failure_reason",
    "query_id",
    "reason_of",
    "run_queries",
    "served_page",
    "watched",
    "write_once",
]
