"""A long run of aioprod with 1,000 records/s on a real cluster, whose nodes and leaders fail again
and again: ``python -m tests.anomalies --soak HOURS``.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from aioprod.testing.jars import KAFKA_VERSIONS
from tests.anomalies.control import REPLICAS, CampaignControl
from tests.anomalies.injection import inject, restore
from tests.anomalies.soak import Judgment, judge, schedule
from tests.anomalies.soak_process import SoakProcess
from tests.faults.harness.cluster_control import controlled_cluster

_INTERVAL_S = 10.0
_SHORT_S = 1800.0
_SHORT_INTERVAL_S = 2.0
_HOUR_S = 3600.0


def soak(hours: float, seed: int, kafka: str = KAFKA_VERSIONS[0], path: Path | None = None) -> bool:
    """Run for some hours, print what was found, and return whether it is all right: no record lost
    or failed, none read twice, and no slope that exceeds its limit.

    Args:
        path: gets the samples and the result as a line of JSON.
    """
    with controlled_cluster({}, 0, kafka) as cluster:
        return asyncio.run(_soak(CampaignControl(*cluster), hours, seed, kafka, path))


async def _soak(
    control: CampaignControl, hours: float, seed: int, kafka: str, path: Path | None
) -> bool:
    seconds = hours * _HOUR_S
    topic = f"soak-{time.time_ns()}"
    control.topics = [topic]
    await control.create_topic(topic, REPLICAS)
    interval_s = _SHORT_INTERVAL_S if seconds < _SHORT_S else _INTERVAL_S
    steps = schedule(seed, seconds)
    async with SoakProcess.running(control.cluster.bootstrap_servers, topic, interval_s) as process:
        for step in steps:
            await inject(step, control, [])
            print(f"{step}; {process.samples[-1] if process.samples else 'no sample'}", flush=True)
        await restore(control)
        counts = await process.end()
    findings = judge(process.samples)
    print(f"seed {seed}, {len(steps)} faults, {', '.join(f'{n} {k}' for k, n in counts.items())}")
    print(*findings, sep="\n")
    if path is not None:
        result = {
            "hours": hours,
            "seed": seed,
            "kafka": kafka,
            "counts": counts,
            "steps": [str(each) for each in steps],
            "slopes": {
                each.name: [each.slope.per_hour, each.slope.low, each.slope.high, each.limit]
                for each in findings
            },
            "samples": process.samples,
        }
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    return not any(counts[name] for name in ("lost", "failed", "duplicates")) and not any(
        each.judgment is Judgment.EXCEEDED for each in findings
    )
