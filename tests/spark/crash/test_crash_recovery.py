"""Two kills in the ordinary suite, of a Python worker and of the driver's JVM. Many more by ``-m
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
        # A task has prepared its transaction, a second attempt is decided for, one of the decided
        # transactions has ended.
        outcome = campaign.crash(
            Point("end", "write", action="kill worker"),
            Point("END_TXN:after", "commit", nth=2),
            master="local[4,4]",
        )
        assert outcome.crashed and sorted(outcome.fired) == [0, 1], (
            f"not all was reached: {outcome.fired}"
        )
        rows = campaign.finish()
    report(rows)
    assert [(row.duplicates, row.missing) for row in rows] == [(0, 0)] * 2
    assert [row.replayed for row in rows] == [0, 1]
    assert sum(row.kills for row in rows) == 2
