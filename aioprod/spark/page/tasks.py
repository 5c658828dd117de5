"""The tasks of a query's newest micro-batch, from the store in the driver that Spark's UI reads. It
exists with ``spark.ui.enabled=false``, too.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

MAX_TASKS = 20
"""The number of tasks in the page's data: those that took longest."""

_MAX_JOBS = 10


class QueryTasks:
    """Finds tasks, and remembers those of the newest micro-batch whose jobs have ended. All methods
    may be called from any thread.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, dict[str, Any]]] = {}

    def longest_stage(self, query: str, run_id: UUID) -> dict[str, Any] | None:
        """Return the stage of the micro-batch that took longest, ready for JSON; None if Spark has
        reported none, and with Spark Connect.

        Args:
            query: the query's name.
            run_id: identifies the query's current run.
        """
        context = SparkContext._active_spark_context
        if context is not None:
            try:
                self._find(context, query, str(run_id))
            except (Py4JError, OSError):
                pass  # the session ends, or the store has dropped the stage
        known = self._found.get(query)
        return None if known is None else known[1]

    def _find(self, context: SparkContext, query: str, run_id: str) -> None:
        # Spark returns the newest first, but does not promise any order.
        jobs = sorted(map(int, context._jsc.sc().statusTracker().getJobIdsForGroup(run_id)))
        if not jobs:
            return
        known, newest = self._found.get(query), jobs[-1]
        if known is None or known[0] != newest:
            stage = _longest_stage(context, jobs)
            if stage is not None:  # all jobs of the micro-batch have ended
                self._found[query] = newest, stage


def _longest_stage(context: SparkContext, job_ids: list[int]) -> dict[str, Any] | None:
    jvm = context._jvm
    assert jvm is not None
    api = jvm.org.apache.spark.status.api.v1
    store, mapper = context._jsc.sc().statusStore(), api.JacksonMessageWriter().mapper()

    def read(value: object) -> Any:
        return json.loads(mapper.writeValueAsString(value))

    jobs = [read(store.job(each)) for each in job_ids[-_MAX_JOBS:]]
    newest = [each for each in jobs if each.get("description") == jobs[-1].get("description")]
    if any(each["status"] != "SUCCEEDED" for each in newest):
        return None
    numbers = {number for each in newest for number in each["stageIds"]}
    stages = [read(store.lastStageAttempt(number)) for number in numbers]
    # Stages whose result Spark has already are skipped.
    ended = [each for each in stages if each["status"] == "COMPLETE"]
    if not ended:
        return None
    longest = max(ended, key=lambda stage: int(stage["executorRunTime"]))
    order, every = api.TaskSorting.DECREASING_RUNTIME, jvm.java.util.ArrayList()
    place = longest["stageId"], longest["attemptId"]
    tasks = read(store.taskList(*place, 0, MAX_TASKS, order, every))
    return _document(longest, tasks)


def _document(stage: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    number = stage["numCompleteTasks"]
    return {
        "stage": stage["stageId"],
        "tasks": number,
        "mean_ms": stage["executorRunTime"] / number,
        "mean_rows": (stage["inputRecords"] + stage["shuffleReadRecords"]) / number,
        "longest": [
            {
                "task": task["index"],
                "executor": task["executorId"],
                "ms": metrics["executorRunTime"],
                "rows": metrics["inputMetrics"]["recordsRead"]
                + metrics["shuffleReadMetrics"]["recordsRead"],
            }
            for task in tasks
            if (metrics := task.get("taskMetrics"))
        ],
    }
