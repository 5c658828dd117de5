"""Shows the queries' progress as a table in the terminal. Requires ``rich``."""

from __future__ import annotations

from rich import box
from rich.table import Table

from aioprod.spark.progress import QueryProgress

_COLUMNS = ("batch", "rows", "rows/s", "lag", "time", "in all")


class ProgressTable:
    """Has a row for each query with its newest micro-batch. ``rich.live.Live`` draws it; `add` may
    be called from any thread.
    """

    def __init__(self) -> None:
        self._newest: dict[str, QueryProgress] = {}
        self._rows: dict[str, int] = {}

    def add(self, progress: QueryProgress) -> None:
        """Add a micro-batch. An empty one does not replace one with rows, because it would hide its
        speed.
        """
        self._rows[progress.query] = self._rows.get(progress.query, 0) + progress.rows
        if progress.rows or progress.query not in self._newest:
            self._newest[progress.query] = progress

    def __rich__(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("query", no_wrap=True)
        for name in _COLUMNS:
            table.add_column(name, justify="right", no_wrap=True)
        for query, newest in sorted(self._newest.items()):
            lag = "" if newest.lag is None else f"{newest.lag:,}"
            cells = (
                f"{newest.batch_id}",
                f"{newest.rows:,}",
                f"{newest.rows_per_second:,.0f}",
                lag,
                f"{newest.batch_ms / 1000:.1f} s",
            )
            table.add_row(query, *cells, f"{self._rows[query]:,}")
        return table
