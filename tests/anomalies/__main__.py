"""Judge clients under faults: ``python -m tests.anomalies --faults kill,roll --seed 1``."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from aioprod import native
from aioprod.testing.jars import KAFKA_VERSIONS
from tests.anomalies.campaign import Campaign, table
from tests.anomalies.clients import CLIENTS
from tests.anomalies.faults import FAULTS, SKEWED
from tests.anomalies.injection import faketime_library
from tests.anomalies.row import Row
from tests.anomalies.soak_campaign import soak
from tests.anomalies.workload import CALLERS
from tests.faults.harness.cluster_control import SECONDS, controlled_cluster
from tests.faults.harness.groups.runner import BROKER_SETTINGS


def _version(text: str) -> str:
    for each in KAFKA_VERSIONS:
        if f"{each}.".startswith(f"{text}."):
            return each
    raise argparse.ArgumentTypeError(f"{text}: must be one of {', '.join(KAFKA_VERSIONS)}")


def main() -> int:
    """Run the chosen faults and print a table. Returns 1 if aioprod's histories have anomalies."""
    parser = argparse.ArgumentParser(prog="python -m tests.anomalies", description=__doc__)
    parser.add_argument(
        "--faults",
        default=",".join(FAULTS),
        help=f"any of {', '.join(FAULTS)}; each takes about {SECONDS:g} s, which the environment "
        "variable AIOPROD_FAULT_SECONDS changes (default: all)",
    )
    parser.add_argument(
        "--clients",
        default=",".join(name for name, client in CLIENTS.items() if not client.on_demand),
        help=f"any of {', '.join(CLIENTS)}, which run at the same time (default: all but franz-go, "
        "which needs Go)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the faults and operations (default: 1)"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="each with the next seed (default: 1)"
    )
    parser.add_argument(
        "--kafka",
        type=_version,
        default=KAFKA_VERSIONS[0],
        help=f"the brokers' version, one of {', '.join(KAFKA_VERSIONS)}, or its begin, as 3.9 "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--callers",
        type=int,
        default=CALLERS,
        help="tasks that send with each client's plain producer; each waits for its "
        "acknowledgment and pauses for 10 ms (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, help="add a line for each row to this file")
    parser.add_argument(
        "--soak",
        type=float,
        metavar="HOURS",
        help="instead, run aioprod with 1,000 records/s under faults for as long, and compare the "
        "slopes of memory, descriptors, tasks, CPU time and rate with limits",
    )
    chosen = parser.parse_args()
    if chosen.soak:
        return int(not soak(chosen.soak, chosen.seed, chosen.kafka, chosen.json))
    return _campaigns(parser, chosen)


def _campaigns(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    faults, clients = chosen.faults.split(","), chosen.clients.split(",")
    if unknown := [*({*faults} - FAULTS.keys()), *({*clients} - CLIENTS.keys())]:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if "aioprod" in clients and not native.in_use:
        parser.error("aioprod is not built with its accelerator: choose aioprod-pure")
    if SKEWED in faults and faketime_library() is None:
        print(f"{SKEWED} is left out: install the distribution's package faketime", file=sys.stderr)
        faults.remove(SKEWED)
    for name in clients:
        CLIENTS[name].prepare()
    rows: list[Row] = []
    with controlled_cluster(BROKER_SETTINGS, len(clients), chosen.kafka) as cluster:
        campaign = Campaign(*cluster, chosen.kafka, chosen.callers)
        for seed in range(chosen.seed, chosen.seed + chosen.rounds):
            for fault in faults:
                found = asyncio.run(campaign.run(fault, clients, seed, SECONDS))
                print(table(found), flush=True)
                rows += found
                if chosen.json:
                    with chosen.json.open("a", encoding="utf-8") as file:
                        file.writelines(json.dumps(each.as_json()) + "\n" for each in found)
    print(f"\n{table(rows)}")
    for each in rows:
        for example in each.examples:
            print(f"{each.client}, {each.fault}, seed {each.seed}: {example}")
    return int(any(each.anomalies for each in rows if each.client.startswith("aioprod")))


if __name__ == "__main__":
    raise SystemExit(main())
