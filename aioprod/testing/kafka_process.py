"""Runs a Kafka node in a Java process, with settings and data in a directory. The node ends when
this process ends.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from aioprod.testing.cache import SetupError
from aioprod.testing.class_archive import class_archive
from aioprod.testing.jars import KAFKA_VERSIONS, kafka_jars
from aioprod.testing.java import find_java
from aioprod.testing.kafka_listener import SCRAM_MECHANISMS, Listener, properties_text

#: For tests: starts in half the time, but runs at half the speed.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_FORMAT_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 10
_RECORD_TIMEOUT_S = 60
_IDENTITY_FILE = "meta.properties"
# The other files of a new data directory, by version and settings: they name versions of Kafka's
# features, and are the same for all nodes.
_FORMATTED: dict[tuple[str, frozenset[tuple[str, str]]], dict[str, bytes]] = {}
_STARTED = (
    "Kafka Server started"  # logged when the broker is unfenced: from then on clients find leaders
)

# Java replaces the shell, so it has the shell's process id. A watcher process reads from a pipe
# whose other end only this process has. A line means a clean stop. End of file means that this
# process has died: the watcher then removes the data and kills its process group. (Linux's
# parent-death signal would already fire when the thread that started the broker ends.)
_WATCHED = (
    'exec 3<&0; dir=$1; shift; (read -r _ <&3 || { rm -rf "$dir"; kill -9 0; }) >/dev/null 2>&1 '
    '& exec 3<&- </dev/null; exec "$@"'
)


class KafkaProcess:
    """The Java process of a node. It can be restarted any number of times, always with the same
    data.

    Args:
        directory: the existing directory for settings, data and logs.
        settings: ``server.properties``, by Kafka's names.
        version: one of ``aioprod.testing.jars.KAFKA_VERSIONS``.
        heap_mb: the JVM's maximum heap size in MiB.
        remove: the directory to remove if this process dies.
        java_options: options of the JVM. With :data:`QUICK_START` it also maps an archive of its
            classes, if there is one.
        record_classes: the file in which the JVM lists the classes that it loads; it then maps no
            archive.
        plugins: jars with classes that the settings name, such as metrics reporters.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        *,
        version: str,
        heap_mb: int,
        remove: Path,
        java_options: Sequence[str] = QUICK_START,
        record_classes: Path | None = None,
        plugins: Sequence[Path] = (),
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._version = version
        self._remove = remove
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / "broker.log"
        self._properties = directory / "server.properties"
        self._properties.write_text(properties_text(settings))
        logging = directory / "logging.properties"
        logging.write_text(_logging_properties(self._log))
        jars = kafka_jars(version)
        archive = (
            kafka_class_archive(version, jars)
            if tuple(java_options) == QUICK_START and not record_classes
            else None
        )
        self._java = [
            str(find_java()),
            *java_options,
            *([f"-XX:SharedArchiveFile={archive}"] if archive else []),
            f"-Djava.util.logging.config.file={logging}",
            "-cp",
            os.pathsep.join(map(str, (*jars, *plugins))),
        ]
        self._launch_options = [
            f"-Xmx{heap_mb}m",
            *([f"-XX:DumpLoadedClassList={record_classes}"] if record_classes else []),
        ]

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None if it is not running."""
        return self._process.pid if self._process else None

    def prepare(self, cluster_id: str, scram_users: Mapping[str, str]) -> None:
        """Create the data directory, without Kafka's storage tool if this process has used it for a
        node of this version.

        Raises:
            SetupError: if Kafka's storage tool fails. The message has its output.
        """
        settings = self._settings
        features = {name: text for name, text in settings.items() if name.startswith("unstable.")}
        kind = self._version, frozenset(features.items())
        data = Path(settings["log.dirs"])
        others = "," in settings["log.dirs"] or "metadata.log.dir" in settings
        if others or scram_users:  # these are stored in the data directory
            self.format(cluster_id, scram_users)
        elif kind in _FORMATTED:
            for name, content in _FORMATTED[kind].items():
                (data / name).parent.mkdir(parents=True, exist_ok=True)
                (data / name).write_bytes(content)
            identity = {
                "version": "1",
                "cluster.id": cluster_id,
                "node.id": settings["node.id"],
                "directory.id": new_cluster_id(),
            }
            (data / _IDENTITY_FILE).write_text(properties_text(identity))
        else:
            self.format(cluster_id, scram_users)
            files = [path for path in data.rglob("*") if path.is_file()]
            _FORMATTED[kind] = {
                str(path.relative_to(data)): path.read_bytes()
                for path in files
                if path.name != _IDENTITY_FILE
            }

    def format(self, cluster_id: str, scram_users: Mapping[str, str]) -> None:
        """Create the data directory with Kafka's storage tool.

        Raises:
            SetupError: if Kafka's storage tool fails. The message has its output.
        """
        tool = [
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            "--config",
            str(self._properties),
        ]
        for user, password in scram_users.items():
            tool += [
                f"--add-scram={mechanism}=[name={user},password={password}]"
                for mechanism in SCRAM_MECHANISMS
            ]
        command = [self._java[0], "-Xmx128m", *self._java[1:], *tool]
        output = self._directory / "format.log"
        process = self._start(command, output)
        try:
            status = process.wait(_FORMAT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise SetupError(
                f"Kafka's storage tool did not end within {_FORMAT_TIMEOUT_S} s"
            ) from None
        finally:
            _end(process)
        if status != 0:
            raise SetupError(
                f"Kafka's storage tool failed (exit status {status}):\n"
                f"{output.read_text(errors='replace')[-2000:]}"
            )

    def launch(self) -> None:
        """Start the JVM. :meth:`wait_until_started` waits until it is ready."""
        self._log.unlink(missing_ok=True)
        command = [
            self._java[0],
            *self._launch_options,
            *self._java[1:],
            "kafka.Kafka",
            str(self._properties),
        ]
        self._process = self._start(command, self._directory / "output.log")

    def _start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            # A separate session: Ctrl-C in the terminal reaches only this process, which then stops
            # the broker.
            return subprocess.Popen(
                ["sh", "-c", _WATCHED, "sh", str(self._remove), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_started(self, timeout_s: float) -> None:
        """Wait until the node is ready for clients.

        Raises:
            SetupError: if it exits or is not ready after ``timeout_s`` seconds. The message has the
                end of its log.
        """
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while not (self._log.exists() and _STARTED in self._log.read_text(errors="replace")):
            if (status := self._process.poll()) is not None:
                raise SetupError(
                    f"the Kafka broker ended with exit status {status} while starting; its "
                    f"log ends with:\n{self.log_tail()}"
                )
            if time.monotonic() >= deadline:
                raise SetupError(
                    f"the Kafka broker did not start within {timeout_s:g} s; its log ends "
                    f"with:\n{self.log_tail()}"
                )
            time.sleep(0.05)

    def log_tail(self, lines: int = 25) -> str:
        """Return the last lines of the node's log."""
        texts = []
        for path in (self._directory / "output.log", self._log):
            try:
                texts.append(path.read_text(errors="replace"))
            except OSError:
                pass
        return "\n".join("".join(texts).splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        """Send the JVM a signal.

        Raises:
            RuntimeError: if it is not running.
        """
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError("this Kafka node is not running")
        self._process.send_signal(number)

    def terminate(self, timeout_s: float) -> None:
        """Shut the node down cleanly (SIGTERM): it moves its leaderships first.

        Raises:
            TimeoutError: if it is still running after ``timeout_s`` seconds.
        """
        self.signal(signal.SIGTERM)
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"the Kafka node did not shut down within {timeout_s:g} s; its log ends "
                f"with:\n{self.log_tail()}"
            ) from None
        self.kill()

    def kill(self) -> None:
        """Kill the JVM at once, even if it is frozen, and wait until it has ended. Do nothing if it
        is not running. The data is kept.
        """
        process, self._process = self._process, None
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a watched process; its watcher keeps the data."""
    process.kill()
    process.wait(_STOP_TIMEOUT_S)
    assert process.stdin is not None
    try:
        process.stdin.write(b"\n")
        process.stdin.close()
    except BrokenPipeError:
        pass


def kafka_class_archive(version: str, jars: Sequence[Path]) -> Path | None:
    """Return the archive of the classes that a node of this version loads from its jars
    (`kafka_jars`). Creating it takes 12 s, once per machine.

    Return None if it can't be created, and for versions other than the default, which are rarely
    started.

    Raises:
        SetupError: if Java or the cache directory is not available.
    """
    if version != KAFKA_VERSIONS[0]:
        return None
    return class_archive(f"kafka-{version}", jars, QUICK_START, partial(_record_classes, version))


def _record_classes(version: str, classes: Path) -> None:
    """List the classes of a node by starting and stopping it."""
    directory, listener = classes.parent, Listener(name="PLAINTEXT")
    controller_port, port = free_ports(2)
    settings = node_settings(
        1, directory, voters={1: controller_port}, ports={listener.name: port}, listeners=[listener]
    )
    settings |= replica_settings(1, 1)
    node = KafkaProcess(
        directory, settings, version=version, heap_mb=320, remove=directory, record_classes=classes
    )
    try:
        node.format(new_cluster_id(), {})
        node.launch()
        node.wait_until_started(_RECORD_TIMEOUT_S)
        node.terminate(_RECORD_TIMEOUT_S)
    except RuntimeError as error:  # it has already ended
        raise SetupError(str(error)) from error
    finally:
        node.kill()


def node_settings(
    node_id: int,
    directory: Path,
    *,
    voters: Mapping[int, int],
    ports: Mapping[str, int],
    listeners: Sequence[Listener],
) -> dict[str, str]:
    """Return the settings in ``server.properties`` that all KRaft nodes (combined broker and
    controller) on this machine share.

    Args:
        voters: the controllers' ports by node id, this node's included.
        ports: the ports by listener name. Brokers use the first of ``listeners`` among themselves.
    """
    addresses = ",".join(
        f"{listener.name}://127.0.0.1:{ports[listener.name]}" for listener in listeners
    )
    advertised = ",".join(
        f"{listener.name}://127.0.0.1:{listener.advertised_port or ports[listener.name]}"
        for listener in listeners
    )
    protocols = ",".join(f"{listener.name}:{listener.security_protocol}" for listener in listeners)
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{voter}@127.0.0.1:{port}" for voter, port in voters.items()
        ),
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{voters[node_id]}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": listeners[0].name,
        "log.dirs": str(directory / "data"),
        "log.segment.bytes": str(64 << 20),
        "log.cleaner.enable": "false",  # its buffer takes 128 MiB
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "5",
        # tests should not wait for it
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        "share.coordinator.state.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
    for listener in listeners:
        settings |= listener.server_properties(directory)
    return settings


def replica_settings(replication_factor: int, min_insync_replicas: int) -> dict[str, str]:
    """Return the settings for the number of replicas, including that of Kafka's internal topics."""
    factor, least = str(replication_factor), str(min_insync_replicas)
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": least,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": least,
    }


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's format."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def free_ports(count: int) -> list[int]:
    """Return different free ports of 127.0.0.1. Another process may take one before the broker
    does.
    """
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _logging_properties(log: Path) -> str:
    return (
        "handlers=java.util.logging.FileHandler\n.level=WARNING\n"
        "kafka.server.KafkaRaftServer.level=INFO\n"
        f"java.util.logging.FileHandler.pattern={log}\n"
        "java.util.logging.FileHandler.formatter=java.util.logging.SimpleFormatter\n"
        "java.util.logging.SimpleFormatter.format=%1$tF %1$tT.%1$tL %4$s %3$s %5$s %6$s%n\n"
    )
