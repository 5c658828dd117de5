"""The tables of results: a row for each client, or group, in each scenario."""

from __future__ import annotations

from typing import Any

from tests.faults.harness.groups.runner import GroupOutcome
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


class GroupReport:
    """Collects the rows of the table of groups."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __call__(self, outcome: GroupOutcome) -> None:
        for result in outcome.results:
            verdict = result.verdict
            self._rows.append(
                {
                    "scenario": outcome.scenario,
                    "protocol": result.protocol,
                    "client": result.client,
                    "faults": result.faults,
                    "gaps": len(result.gaps),
                    "median_gap": round(result.median_gap, 2),
                    "longest_gap": round(result.longest_gap, 2),
                    "own_gap": round(result.median_own_gap, 2),
                    "records": verdict.written,
                    "lost": len(verdict.lost),
                    "stuck": len(verdict.stuck),
                    "duplicates": verdict.duplicates,
                    "idle": round(verdict.idle_seconds, 2),
                    "leave": round(result.leave_seconds, 2),
                    "findings": verdict.findings(0.0)[:20],
                    "errors": verdict.errors[:20],
                }
            )
