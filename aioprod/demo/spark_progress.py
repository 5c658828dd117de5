"""The progress that the user sees while Spark is running."""

from __future__ import annotations

from typing import Self

from rich.console import Console, Group
from rich.live import Live

from aioprod.demo.pipeline import query_names
from aioprod.demo.report import REFRESHES_PER_SECOND, progress_bar
from aioprod.spark.pipeline.table import ProgressTable
from aioprod.spark.progress import QueryProgress


class SparkProgress:
    """A progress bar of the records that Spark has read, and a table of its queries; as a context
    manager it is drawn.
    """

    def __init__(self, console: Console, topic: str, records: int) -> None:
        self._console = console
        self._read_by = query_names(topic)[0]
        self._table = ProgressTable()
        self._bar = progress_bar(console)
        self._task = self._bar.add_task("starting Spark", total=records)
        self._live = Live(
            Group(self._bar, self._table), console=console, refresh_per_second=REFRESHES_PER_SECOND
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if not self._console.is_interactive:
            self._console.print()  # the last line is drawn without its end

    def started(self) -> None:
        """Spark runs; what follows is reading."""
        self._bar.reset(self._task, description="Spark reads")

    def add(self, progress: QueryProgress) -> None:
        """Take a micro-batch."""
        self._table.add(progress)
        if progress.query == self._read_by:
            self._bar.advance(self._task, progress.rows)

    def ending(self) -> None:
        """Spark is ending."""
        self._bar.update(self._task, description="ending Spark")
