"""The table of results: a row for each client in each scenario."""

from __future__ import annotations

from typing import Any

from tests.faults.harness.runner import Outcome


class Report:
    """Collects the rows of the table."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __call__(self, outcome: Outcome) -> None:
        for client, timeline in outcome.timelines.items():
            gaps = outcome.gaps(client)
            self._rows.append(
                {
                    "scenario": outcome.scenario,
                    "client": client,
                    "faults": len(gaps),
                    "sent": timeline.sent,
                    "acknowledged": timeline.count,
                    "failed": len(timeline.failures),
                    "open": timeline.open,
                    "median_gap": round(outcome.median_gap(client), 2),
                    "longest_gap": round(max(gaps, default=0.0), 2),
                    "close": round(timeline.close_seconds, 2),
                    "findings": [str(finding) for finding in outcome.findings]
                    if client == "aioprod"
                    else [],
                }
            )
