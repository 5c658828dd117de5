"""A handful of kills in the ordinary suite: Python workers, and the driver's JVM. Many more by ``-m
faults``, see test_crash_campaign.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .crash_report import ROWS, Campaign, Row
from .crash_spec import Point
from .crash_stage import Life


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_kills_double_and_lose_nothing(kafka: str, report: Callable[[list[Row]], None]) -> None:
    with Life(kafka, {"delivery": "exactly-once"}, rows_per_batch=ROWS) as life:
        campaign = Campaign(life)
        for master, points in (
            # A task's rows are written, and are written again; then all is prepared, and nothing
            # decided.
            (
                "local[2,4]",
                [
                    Point("PRODUCE:after", "write", action="kill worker"),
                    Point("TXN_OFFSET_COMMIT:before", "commit"),
                ],
            ),
            # A task's transaction is prepared, and a second attempt's is decided for; one of the
            # decided ones has ended.
            (
                "local[4,4]",
                [
                    Point("end", "write", action="kill worker"),
                    Point("END_TXN:after", "commit", nth=2),
                ],
            ),
        ):
            outcome = campaign.crash(*points, master=master)
            assert outcome.crashed and sorted(outcome.fired) == [0, 1], (
                f"not all was reached: {outcome.fired}"
            )
        rows = campaign.finish()
    report(rows)
    assert [(row.duplicates, row.missing) for row in rows] == [(0, 0)] * 3
    assert [row.replayed for row in rows] == [0, 1, 1]
    assert sum(row.kills for row in rows) == 4
