"""Old releases of Apache Kafka on this machine; those before 3.3 with ZooKeeper.

The jars are in the user's cache directory, and checked against the sums in ``jars_lock.json``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from aioprod.testing.cache import SetupError
from aioprod.testing.jars import Jar, fetch, ways
from aioprod.testing.java import find_java
from aioprod.testing.kafka_listener import Listener, properties_text
from aioprod.testing.kafka_process import (
    QUICK_START,
    free_ports,
    new_cluster_id,
    node_settings,
    replica_settings,
)

RELEASES: Final = ("2.1.1", "2.8.2", "3.0.2", "4.0.1")
"""Those that `aioprod.testing.real_kafka` does not start."""

_WITH_ZOOKEEPER: Final = ("2.1.1", "2.8.2", "3.0.2")
_JVM_OPTIONS: Final = ("-Xmx320m", "-Dzookeeper.jmx.log4j.disable=true")
_START_LIMIT_S: Final = 90
_STOP_LIMIT_S: Final = 20
_LOGGING: Final = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %c %m%n
"""
_LOCK_FILE: Final = Path(__file__).with_name("jars_lock.json")


def release_jars(release: str) -> list[Path]:
    """Return the jars of a release; the first call fetches some 50 MB.

    Raises:
        SetupError: if they can't be fetched or a sum does not match.
    """
    content: dict[str, dict[str, str]] = json.loads(_LOCK_FILE.read_text())
    jars = [Jar(path, sum_) for path, sum_ in content[f"kafka-{release}"].items()]
    return fetch(f"kafka-{release}", jars, ways())


class Release:
    """One broker of an old release, in a ``with`` block.

    Args:
        release: one of `RELEASES`.
        settings: more lines for ``server.properties``.
    """

    def __init__(self, release: str, settings: Mapping[str, str] | None = None) -> None:
        self._release = release
        self._settings = dict(settings or {})
        self._directory = Path()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.bootstrap_servers = ""

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="aioprod-release-"))
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _start(self) -> None:
        port, other_port = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        listener = Listener(name="PLAINTEXT")
        settings = node_settings(
            1,
            self._directory,
            voters={1: other_port},
            ports={"PLAINTEXT": port},
            listeners=[listener],
        )
        settings |= replica_settings(1, 1)
        if self._release in _WITH_ZOOKEEPER:
            settings = {name: value for name, value in settings.items() if not _is_of_kraft(name)}
            settings |= {"broker.id": "1", "zookeeper.connect": f"127.0.0.1:{other_port}"}
            settings["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
            settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT"
            self._start_zookeeper(other_port)
        properties = self._directory / "server.properties"
        properties.write_text(properties_text(settings | self._settings))
        if self._release not in _WITH_ZOOKEEPER:
            tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={new_cluster_id()}"]
            self._launch(*tool, "--config", str(properties)).wait(_START_LIMIT_S)
        self._wait_for(port, self._launch("kafka.Kafka", str(properties)))

    def _start_zookeeper(self, port: int) -> None:
        config = self._directory / "zookeeper.properties"
        settings = {
            "dataDir": str(self._directory / "zookeeper"),
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }
        config.write_text(properties_text(settings))
        name = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._wait_for(port, self._launch(name, str(config)))

    def _launch(self, *arguments: str) -> subprocess.Popen[bytes]:
        jars = os.pathsep.join(map(str, release_jars(self._release)))
        logging = self._directory / "log4j.properties"
        logging.write_text(_LOGGING)
        with (self._directory / "output.log").open("ab") as output:
            process = subprocess.Popen(
                [
                    str(find_java()),
                    *QUICK_START,
                    *_JVM_OPTIONS,
                    f"-Dlog4j.configuration=file:{logging}",
                    "-cp",
                    jars,
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def _wait_for(self, port: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process accepts connections."""
        deadline = time.monotonic() + _START_LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    tail = (self._directory / "output.log").read_text(errors="replace")[-3000:]
                    raise SetupError(f"Kafka {self._release} did not start:\n{tail}") from None
                time.sleep(0.1)
            else:
                return

    def _stop(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait(_STOP_LIMIT_S)
        shutil.rmtree(self._directory, ignore_errors=True)


def _is_of_kraft(name: str) -> bool:
    return name in ("process.roles", "node.id") or name.startswith(("controller.", "share."))
