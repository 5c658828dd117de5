"""Reports of a run's processes on request: the stacks of a Python process, and Spark's state of its
jobs.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from .crash_spec import SPEC_VARIABLE, Spec, load_spec

ASK_STACKS = signal.SIGUSR1
_POLL_S = 0.3

_answers = False


def stacks_directory(directory: str) -> Path:
    """Return the directory in which each Python process that answers `ASK_STACKS` has a file, by
    process id.
    """
    return Path(directory) / "stacks"


def answer_stacks() -> None:
    """From now on append the stacks of all threads to a file when `ASK_STACKS` comes."""
    global _answers  # one process, one handler
    if _answers:
        return
    _answers = True
    directory = stacks_directory(load_spec(os.environ[SPEC_VARIABLE]).directory)
    directory.mkdir(exist_ok=True)
    # Kept open: the handler writes to its descriptor.
    file = os.open(directory / str(os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    faulthandler.register(ASK_STACKS, file, all_threads=True)


def question(spec: Spec) -> Path:
    """The file that asks the driver for what Spark knows; it is gone when `answer` is there."""
    return spec.path.with_suffix(".question")


def answer(spec: Spec) -> Path:
    """Return the file with the driver's answer, as JSON."""
    return spec.path.with_suffix(".answer")


def answer_questions(spark: SparkSession, spec: Spec) -> None:
    """In the driver: answer until the process ends."""
    while True:
        if question(spec).exists():
            answer(spec).write_text(json.dumps(_state(spark), indent=1))
            question(spec).unlink()
        time.sleep(_POLL_S)


def _state(spark: SparkSession) -> dict[str, Any]:
    tracker = spark.sparkContext.statusTracker()
    java = spark.sparkContext._jsc.sc().statusTracker()
    jobs = {
        job: {"status": info.status, "stages": list(info.stageIds)}
        for job in tracker.getActiveJobsIds()
        if (info := tracker.getJobInfo(job)) is not None
    }
    stages = {
        number: stage._asdict()
        for number in tracker.getActiveStageIds()
        if (stage := tracker.getStageInfo(number)) is not None
    }
    executors = [
        {"at": f"{each.host()}:{each.port()}", "running_tasks": each.numRunningTasks()}
        for each in java.getExecutorInfos()
    ]
    queries = [
        {"status": query.status, "progress": str(query.lastProgress)}
        for query in spark.streams.active
    ]
    return {"jobs": jobs, "stages": stages, "executors": executors, "queries": queries}
