"""The real broker works with other clients, and ends when it should."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from aioprod.testing.cache import SetupError
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.kafka_process import free_ports
from aioprod.testing.real_cluster import RealCluster
from aioprod.testing.real_kafka import RealKafka

pytestmark = pytest.mark.kafka


async def test_a_record_goes_in_and_comes_out(kafka: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        sent = await producer.send_and_wait("real-kafka-smoke", b"value", b"key")
    async with AIOKafkaConsumer(
        "real-kafka-smoke", bootstrap_servers=kafka, auto_offset_reset="earliest"
    ) as consumer:
        record = await consumer.getone()
    assert (record.partition, record.offset, record.key, record.value) == (
        sent.partition,
        0,
        b"key",
        b"value",
    )


def test_a_setting_that_kafka_refuses_ends_with_the_brokers_own_words() -> None:
    kafka = RealKafka(settings={"num.partitions": "none"})
    with pytest.raises(
        SetupError, match=r"(?s)Invalid value none for configuration num\.partitions"
    ):
        kafka.start()
    assert kafka.pid is None
    with pytest.raises(RuntimeError, match="not started"):
        _ = kafka.bootstrap_servers


def test_a_start_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SetupError, match=r"did not start within 0.01 s"):
        RealKafka(start_timeout_s=0.01).start()
    assert list(tmp_path.iterdir()) == []


def test_a_port_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answers = [[taken.getsockname()[1], free_ports(1)[0]], free_ports(2)]
        monkeypatch.setattr("aioprod.testing.real_cluster.free_ports", lambda _: answers.pop(0))
        with RealKafka() as kafka:
            assert kafka.bootstrap_servers != f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    "end", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.faults)]
)
def test_the_broker_dies_with_its_process(end: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "aioprod.testing.real_kafka"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as runner:
        try:
            assert runner.stdout is not None
            host, _, port = runner.stdout.readline().strip().rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
            runner.send_signal(end)
            runner.wait(20)
            deadline = time.monotonic() + 10
            while _listening(host, int(port)) or list(tmp_path.glob("aioprod-kafka-*")):
                assert time.monotonic() < deadline, (
                    "the broker or its data outlives the process that started it"
                )
                time.sleep(0.05)
        finally:
            runner.kill()


def _listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


class TestClusterBeforeItsStart:
    """Checks that need no JVM."""

    def test_nodes_are_numbered_from_one_and_nothing_runs(self) -> None:
        cluster = RealCluster(3)
        assert cluster.node_ids == (1, 2, 3)
        for ask in (
            lambda: cluster.bootstrap_servers,
            lambda: cluster.address(1),
            lambda: cluster.runs(1),
            lambda: cluster.kill(1),
        ):
            with pytest.raises(RuntimeError, match="not started"):
                ask()
        cluster.stop()

    def test_there_is_no_fourth_of_three(self) -> None:
        with pytest.raises(ValueError, match="node_id=4: must be one of 1, 2, 3"):
            RealCluster(3).kill(4)

    def test_each_listener_has_a_name_of_its_own(self) -> None:
        with pytest.raises(ValueError, match="needs a different name"):
            RealCluster(
                3,
                listeners=lambda node: (
                    [Listener(name="PROXY"), Listener(name="proxy")] if node == 2 else []
                ),
            )

    def test_versions_that_cannot_be_had_are_refused(self) -> None:
        with pytest.raises(ValueError, match="must be one of"):
            RealCluster(1, version="0.8")
