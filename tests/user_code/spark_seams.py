"""The rows of Spark's driver; no Java is needed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.user_code.seams import Run, Seam, logged_in_thread


async def progress(run: Run) -> None:
    from aioprod.spark import ProgressListener, QueryProgress  # needs PySpark

    received: list[Any] = []

    def on_progress(report: QueryProgress) -> None:
        received.append(report)
        if len(received) == 1:
            run.fail()

    listener = ProgressListener(on_progress)
    with patch.object(QueryProgress, "of", lambda report: report):
        for number in range(2):
            report = SimpleNamespace(query="q", number=number, run_id="1")
            await asyncio.to_thread(listener.onQueryProgress, SimpleNamespace(progress=report))  # type: ignore[arg-type]
    assert [report.number for report in received] == [0, 1]
    assert listener.newest["q"] is received[1]


SPARK_SEAMS = [Seam("ProgressListener(on_progress)", logged_in_thread, progress)]
