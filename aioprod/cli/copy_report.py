"""The report of ``aioprod copy``: throughput and lag for each interval, and the total at the
end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from aioprod.cli.copy_topic import TopicCopy, sum_of
from aioprod.cli.output import SAME_LINE, note, show
from aioprod.counts import counted


class _Totals(NamedTuple):
    """The totals at one moment."""

    at: float
    records: list[int]
    data_bytes: int


class CopyReport:
    """Prints lines of JSON on standard output, or of text on standard error.

    Args:
        copies: the copies to report on.
        options: the command's arguments.
    """

    def __init__(self, copies: Sequence[TopicCopy], options: argparse.Namespace) -> None:
        self._copies = copies
        self._interval_s: float = options.interval
        self._json: bool = options.json
        self._quiet: bool = options.quiet
        self._line_begin = self._line_end = ""
        if sys.stderr.isatty():
            self._line_begin = SAME_LINE
        else:
            self._line_end = "\n"
        self._before = self._totals()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Print the total, also after an error."""
        if self._json:
            self._print_json()
        elif not self._quiet:
            total = sum(copy.records for copy in self._copies)
            topics = counted(len(self._copies), "topic")
            note(f"{self._line_begin}copied {counted(total, 'record')} of {topics}")

    async def run(self) -> None:
        """Print a line for each interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            if self._json:
                self._print_json()
            elif not self._quiet:
                self._print_text()

    def _totals(self) -> _Totals:
        return _Totals(
            time.monotonic(),
            [copy.records for copy in self._copies],
            sum(copy.data_bytes for copy in self._copies),
        )

    def _print_text(self) -> None:
        before, now = self._before, self._totals()
        self._before, seconds = now, now.at - before.at
        speed = (sum(now.records) - sum(before.records)) / seconds
        megabytes = (now.data_bytes - before.data_bytes) / seconds / 1e6
        lag = sum_of([copy.lag for copy in self._copies])
        note(
            f"{self._line_begin}copied {counted(sum(now.records), 'record')}  "
            f"{speed:,.0f} records/s  {megabytes:,.1f} MB/s  "
            f"lag {'-' if lag is None else f'{lag:,}'}",
            end=self._line_end,
        )

    def _print_json(self) -> None:
        before, now = self._before, self._totals()
        self._before, seconds = now, max(now.at - before.at, 1e-9)
        topics = [
            {
                "topic": copy.pair.topic,
                "to_topic": copy.pair.to_topic,
                "copied": records,
                "records_per_s": (records - earlier) / seconds,
                "lag": copy.lag,
            }
            for copy, records, earlier in zip(
                self._copies, now.records, before.records, strict=True
            )
        ]
        line = {
            "interval_s": seconds,
            "copied": sum(now.records),
            "records_per_s": (sum(now.records) - sum(before.records)) / seconds,
            "bytes_per_s": (now.data_bytes - before.data_bytes) / seconds,
            "lag": sum_of([copy.lag for copy in self._copies]),
            "topics": topics,
        }
        show(line, indent=None)
