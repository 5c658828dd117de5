"""A handful of crashes of the driver's JVM, in the ordinary suite; many more by ``-m faults``, see test_crash_campaign.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .crash_report import ROWS, Campaign, Row
from .crash_spec import Point
from .crash_stage import Life


@pytest.mark.spark
@pytest.mark.usefixtures("quick_python")
@pytest.mark.timeout(400)
def test_crashes_double_rows_at_least_once_and_none_exactly_once(kafka: str, report: Callable[[list[Row]], None]) -> None:
    with Life(kafka, {"delivery": "exactly-once"}, rows_per_batch=ROWS) as life:
        campaign = Campaign(life)
        # The same harness finds the rows doubled of a sink that promises less.
        assert campaign.crash(Point("end", "commit"), options={"delivery": "at-least-once"}).crashed
        for point in (
            Point("TXN_OFFSET_COMMIT:before", "commit"),  # all is prepared, nothing decided
            Point("END_TXN:after", "commit", nth=2),  # decided, one of the tasks' transactions ended
        ):
            assert campaign.crash(point).crashed, f"{point.name} was not reached"
        rows = campaign.finish()
    report(rows)
    assert [row.duplicates for row in rows] == [ROWS, 0, 0, 0]
    assert [row.missing for row in rows] == [0] * 4
    assert [row.replayed for row in rows] == [0, 1, 1, 1]
