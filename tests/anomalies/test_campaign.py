"""The campaign's rows, and a short campaign on a cluster of its own (only with ``-m faults``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aioprod import Producer
from tests.anomalies.campaign import table
from tests.anomalies.clients import CLIENTS
from tests.anomalies.control import CampaignControl, coordinated
from tests.anomalies.history import Entry, History, Operation, Outcome, Send
from tests.anomalies.injection import faketime_library, inject
from tests.anomalies.row import Row, judged, longest_gap
from tests.anomalies.schedule import Action, Step
from tests.faults.harness.cluster_control import controlled_cluster
from tests.faults.harness.groups.runner import java_hash
from tests.waiting import until


def sent(number: int, at: float, outcome: Outcome = Outcome.OK) -> Operation:
    return Operation(number, "sender", 0, at, at + 0.1, outcome, (Send("t/0", number, number),))


def test_a_row_counts_outcomes_anomalies_and_the_longest_gap() -> None:
    history = History([sent(0, 0.0), sent(1, 1.0), sent(2, 2.0, Outcome.UNKNOWN), sent(3, 4.0)])
    history.log["t/0"] = [Entry(0, 0), Entry(3, 3)]
    history.ended = 5.0
    history.operations[2].error = "TimeoutError: 25 s"
    found = Row("aioprod", "1.0", "4.4", "kill", 1, 60, **judged(history))
    assert found.outcomes == {"ok": 3, "unknown": 1}
    assert found.longest_gap_s == 3.0
    assert found.anomalies == {"lost-write": 1}
    assert len(found.examples) == 1
    assert found.errors == {"sender: TimeoutError: 25 s": 1}
    assert table([found]).splitlines()[-1] == (
        "| kill -9 of a node | aioprod | 4 | 0 | 1 | 3 | lost-write: 1 |"
    )


def test_a_transaction_that_outlasts_the_other_callers_adds_no_gap() -> None:
    operations = [sent(0, 0.0), sent(1, 1.0), sent(2, 9.0)]
    assert longest_gap(History(operations)) == pytest.approx(8.0)
    operations[2].transactional = True
    assert longest_gap(History(operations)) == pytest.approx(1.0)
    operations[1].transactional = True
    assert longest_gap(History([operations[1], operations[2]])) == pytest.approx(8.0)


def test_one_node_coordinates_all_clients() -> None:
    """The coordinator's partition is the hash modulo 5, as Kafka computes it."""
    for name in ("kill-aioprod-1", "kill-java-2"):
        topic = coordinated(name)
        assert topic.startswith(name)
        for coordinated_id in (f"{topic}-group", f"{topic}-id"):
            assert (java_hash(coordinated_id) & 0x7FFFFFFF) % 5 == 0
    assert java_hash("orders") == -1008770331  # "orders".hashCode() in Java


def test_unknown_names_are_refused() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.anomalies", "--faults", "kill,flood", "--clients", "aioprod"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "unknown: flood" in ended.stderr


@pytest.mark.faults
@pytest.mark.kafka
@pytest.mark.timeout(1200)
def test_two_short_campaigns_are_clean_and_have_the_same_steps(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    faults = ("kill", "lost-answers", "storm")
    for _ in range(2):
        subprocess.run(
            [
                *(sys.executable, "-m", "tests.anomalies", "--json", str(rows)),
                *("--faults", ",".join(faults), "--seed", "5"),
            ],
            env={**os.environ, "AIOPROD_FAULT_SECONDS": "15"},
            timeout=580,
            check=True,
        )
    found = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    clients = [name for name, client in CLIENTS.items() if not client.on_demand]
    run = [(fault, client) for fault in faults for client in clients]
    assert [(each["fault"], each["client"]) for each in found] == run * 2
    for one, two in zip(found, found[len(run) :], strict=False):
        assert one["steps"] == two["steps"]
    for each in found:
        assert each["outcomes"]["ok"] > 100
        assert not each["client"].startswith("aioprod") or each["anomalies"] == {}


@pytest.mark.faults
@pytest.mark.kafka
@pytest.mark.skipif(faketime_library() is None, reason="needs the package faketime")
async def test_a_node_starts_with_a_skewed_clock() -> None:
    with controlled_cluster({}, 0) as cluster:
        control = CampaignControl(*cluster)
        await inject(Step(Action.SKEW, (1,), seconds=1.0, amount=45), control, [])


@pytest.mark.faults
@pytest.mark.kafka
async def test_a_node_whose_files_cant_grow_ends() -> None:
    with controlled_cluster({}, 0) as cluster:
        control = CampaignControl(*cluster)
        topic = f"full-{os.getpid()}"
        await control.create_topic(topic, 3)
        process = control.cluster._process(2)._process
        assert process is not None
        control.limit_files(2)
        async with Producer(control.cluster.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"x", partition=1)  # whose leader was node 2
            await until(lambda: process.poll() is not None, 60)
        await inject(Step(Action.FILL_DISK, (3,), seconds=3.0), control, [])
