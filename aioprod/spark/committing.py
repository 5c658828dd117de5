"""The sink's work on the driver after all tasks have ended. It handles no rows, so this module does
not import pyarrow, which takes 0.1 s of CPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from aioprod.counts import counted
from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once.driver import abort_batch, commit_batch
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport, Written
from aioprod.spark.kept import event_loop_factory
from aioprod.spark.sink_options import EXACTLY_ONCE, SinkOptions
from aioprod.spark.worker_process import freeze_modules

log: Logger = get_logger(__name__)

T = TypeVar("T")


Messages = Sequence[WriterCommitMessage | None]


def summary(messages: Messages) -> str:
    """Describe what the tasks wrote."""
    written = [message for message in messages if isinstance(message, Written)]
    rows = sum(message.rows for message in written)
    return (
        f"{counted(rows, 'row')} of {sum(message.payload_bytes for message in written)} bytes "
        f"written by {len(written)} of {len(messages)} tasks"
    )


def commit(options: SinkOptions, messages: Messages, version: int) -> None:
    freeze_modules()
    reports = reports_of(messages)
    if options.delivery == EXACTLY_ONCE and len(reports) < len(messages):
        raise SinkError(
            f"batch {version}: {len(messages) - len(reports)} of {len(messages)} tasks have not "
            "reported what they wrote, so it is not committed; nothing of it is visible. Run the "
            "query or write again"
        )
    if options.delivery == EXACTLY_ONCE and not _run(commit_batch(options, reports, version)):
        log.info("batch %d: nothing to write, or written before: %s", version, summary(messages))
    else:
        log.info("batch %d: %s", version, summary(messages))


def abort(options: SinkOptions, messages: Messages, what: str, attempt: TaskAttempt | None) -> None:
    if options.delivery != EXACTLY_ONCE:
        log.warning("%s failed; already written and not taken back: %s", what, summary(messages))
        return
    if attempt is None:
        log.warning(
            (
                "%s failed; what its tasks left open is aborted with the first batch of the "
                "query's next run: %s"
            ),
            what,
            summary(messages),
        )
        return
    try:
        _run(abort_batch(options, attempt, strays=len(reports_of(messages)) < len(messages)))
    except KafkaError as error:
        # Spark already knows that the batch failed; the first batch of the next run cleans up.
        log.warning(
            (
                "%s failed, and not all of it could be cleaned up; open transactions hide later "
                "records until they time out: %s"
            ),
            what,
            error,
        )
    else:
        log.warning(
            "%s failed; what its tasks left open is aborted, unless the batch was decided: %s",
            what,
            summary(messages),
        )


def reports_of(messages: Messages) -> list[TaskReport]:
    return [
        message.report
        for message in messages
        if isinstance(message, Written) and message.report is not None
    ]


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        return runner.run(work)
