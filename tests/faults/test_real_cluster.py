"""Controlling the nodes of a real cluster, on which the fault scenarios depend."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from aioprod.cluster.client import ClusterClient
from aioprod.testing.real_cluster import RealCluster
from tests.faults.harness.cluster_control import NODES
from tests.faults.harness.runner import ScenarioRunner

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(300)]

_KILLED_PROGRAM = """
import os, signal
from aioprod.testing.real_cluster import RealCluster
cluster = RealCluster()
cluster.start()
cluster.pause(2)
print(*(cluster._process(node).pid for node in cluster.node_ids), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_records_survive_the_failure_of_all_nodes() -> None:
    with RealCluster(settings={"num.partitions": "1"}) as cluster:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("kept", b"value")
        cluster.kill(*NODES)
        assert not any(map(cluster.runs, NODES))
        cluster.restart(*NODES)
        cluster.terminate(cluster.active_controller())
        assert sorted(map(cluster.runs, NODES)) == [False, True, True]
        async with AIOKafkaConsumer(
            "kept", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"value"


async def test_a_frozen_node_leaves_the_cluster_and_returns(runner: ScenarioRunner) -> None:
    node = runner.not_controller(0)
    async with asyncio.timeout(60), ClusterClient(runner.cluster.bootstrap_servers) as client:
        runner.cluster.pause(node)
        while node in (await client.refresh_topics([])).nodes:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        runner.cluster.resume(node)
        while node not in (await client.refresh_topics([])).nodes:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_a_stopped_node_cannot_be_frozen() -> None:
    with RealCluster(1) as cluster:
        cluster.kill(1)
        with pytest.raises(RuntimeError, match="is not running"):
            cluster.pause(1)


def test_all_nodes_end_with_the_process(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    pids = list(map(int, done.stdout.split()))
    assert len(pids) == len(NODES)
    deadline = time.monotonic() + 20
    while any(map(_is_alive, pids)) or list(tmp_path.glob("aioprod-kafka-*")):
        assert time.monotonic() < deadline, (
            "a node or its data outlives the process that started it"
        )
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
