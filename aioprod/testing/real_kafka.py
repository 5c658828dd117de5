"""A real Apache Kafka broker of one node (KRaft) on this machine, for tests and the demo. ``python -m aioprod.testing.real_kafka`` runs one."""

from __future__ import annotations

import atexit
import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self

from aioprod.testing.cache import SetupError
from aioprod.testing.jars import KAFKA_VERSIONS, kafka_jars
from aioprod.testing.java import find_java
from aioprod.testing.kafka_listener import SCRAM_MECHANISMS, Listener, properties_text

_FORMAT_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 10
_STARTED = "Kafka Server started"  # logged once the broker is unfenced, so clients find leaders at once
_PORT_TAKEN = "Address already in use"
_PORT_ATTEMPTS = 3
_PLAIN_LISTENER = "PLAINTEXT"

# Java takes the shell's place, so its process id is the one we started. Beside it a watcher waits on a pipe whose other end only our process holds:
# a line means "stopped in order"; end of file means our process has died, and then it removes the data and kills its own process group.
# (Linux's parent-death signal would fire already when the thread that started the broker ends.)
_WATCHED = 'exec 3<&0; dir=$1; shift; (read -r _ <&3 || { rm -rf "$dir"; kill -9 0; }) >/dev/null 2>&1 & exec 3<&- </dev/null; exec "$@"'


class RealKafka:
    """One Kafka broker in a process of its own, listening on a free port of 127.0.0.1, with its data in a temporary directory.

    Synchronous: ``with RealKafka() as kafka: ... kafka.bootstrap_servers``. It is gone when the ``with`` block or the process ends, however it ends.

    ``version``: one of ``aioprod.testing.jars.KAFKA_VERSIONS``. ``heap_mb``: the JVM's largest heap, in MiB.
    ``num_partitions``: Kafka's ``num.partitions``, of topics that are created by use.
    ``listeners``: listeners beside the plain one, for security tests; ``bootstrap_servers_of(name)`` gives the address of each.
    ``scram_users``: name to password of the users that SCRAM listeners know, for both SCRAM mechanisms. Use made-up passwords: they are seen in the
    process list while the data directory is formatted.
    ``settings``: more lines for ``server.properties``, by Kafka's names. ``start_timeout_s``: the longest wait for the broker to serve.
    """

    def __init__(
        self,
        *,
        version: str = KAFKA_VERSIONS[0],
        heap_mb: int = 320,
        num_partitions: int = 1,
        listeners: Sequence[Listener] = (),
        scram_users: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        start_timeout_s: float = 90,
    ) -> None:
        if version not in KAFKA_VERSIONS:
            raise ValueError(f"version must be one of {', '.join(KAFKA_VERSIONS)}, not {version!r}")
        self._version = version
        self._heap_mb = heap_mb
        self._listeners = {listener.name: listener for listener in (Listener(name=_PLAIN_LISTENER), *listeners)}
        if len({name.upper() for name in self._listeners} - {"CONTROLLER"}) != 1 + len(listeners):
            raise ValueError(f"give each listener a name of its own, other than {_PLAIN_LISTENER} and CONTROLLER")
        self._scram_users = _checked_scram_users(scram_users or {})
        self._settings = {"num.partitions": str(num_partitions), **(settings or {})}
        self._start_timeout_s = start_timeout_s
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:PORT`` of the plain listener, which every broker has. Raises RuntimeError while the broker is not started."""
        return self.bootstrap_servers_of(_PLAIN_LISTENER)

    def bootstrap_servers_of(self, listener: str) -> str:
        """``127.0.0.1:PORT`` of the listener of that name. Raises RuntimeError while the broker is not started, KeyError for an unknown listener."""
        if self._process is None:
            raise RuntimeError("this broker is not started")
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None while the broker is not started."""
        return self._process.pid if self._process else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Fetch the jars where they are missing, start the broker and wait until it serves.

        Raises SetupError where Java or the jars can't be had, or with the end of the broker's log where it does not come up in time.
        """
        if self._process is not None:
            raise RuntimeError("this broker is started already")
        if os.name != "posix":
            raise SetupError("a real Kafka broker is started only on Linux and macOS; on Windows use WSL, or give the address of a broker that runs")
        atexit.register(self.stop)
        try:
            for attempt in range(_PORT_ATTEMPTS):
                try:
                    self._start_once()
                    return
                except SetupError as error:
                    self._discard()
                    if _PORT_TAKEN not in str(error) or attempt + 1 == _PORT_ATTEMPTS:
                        raise
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the broker and remove its data; does nothing where it is not started. It is killed at once: nothing is kept that could be harmed."""
        atexit.unregister(self.stop)
        self._discard()

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of the broker's log."""
        texts = []
        for name in ("output.log", "broker.log"):
            try:
                texts.append(self._path(name).read_text(errors="replace"))
            except OSError:
                pass
        return "\n".join("".join(texts).splitlines()[-lines:])

    def _start_once(self) -> None:
        java, class_path = str(find_java()), os.pathsep.join(str(jar) for jar in kafka_jars(self._version))
        self._directory = Path(tempfile.mkdtemp(prefix="aioprod-kafka-"))
        *ports, controller_port = _free_ports(len(self._listeners) + 1)
        self._ports = dict(zip(self._listeners, ports, strict=True))
        self._path("server.properties").write_text(properties_text(self._server_properties(controller_port)))
        self._path("logging.properties").write_text(_logging_properties(self._path("broker.log")))
        logging = f"-Djava.util.logging.config.file={self._path('logging.properties')}"
        base = [java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", logging]
        self._format([*base, "-Xmx128m", "-cp", class_path])
        self._launch([*base, f"-Xmx{self._heap_mb}m", "-cp", class_path, "kafka.Kafka", str(self._path("server.properties"))])
        self._wait_until_started()

    def _format(self, java: list[str]) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", str(self._path("server.properties"))]
        for user, password in self._scram_users.items():
            tool += [f"--add-scram={mechanism}=[name={user},password={password}]" for mechanism in SCRAM_MECHANISMS]
        try:
            done = subprocess.run(
                [*java, *tool], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_FORMAT_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise SetupError(f"Kafka's storage tool did not end within {_FORMAT_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise SetupError(f"Kafka's storage tool failed (exit status {done.returncode}):\n{done.stdout.decode(errors='replace')[-2000:]}")

    def _launch(self, command: list[str]) -> None:
        with self._path("output.log").open("wb") as output:
            # A session of its own: the terminal's Ctrl-C is for our process, which then stops the broker.
            self._process = subprocess.Popen(
                ["sh", "-c", _WATCHED, "sh", str(self._directory), *command],
                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _wait_until_started(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout_s
        log = self._path("broker.log")
        while not (log.exists() and _STARTED in log.read_text(errors="replace")):
            if (status := self._process.poll()) is not None:
                raise SetupError(f"the Kafka broker ended with exit status {status} while starting; its log ends with:\n{self.log_tail()}")
            if time.monotonic() >= deadline:
                raise SetupError(f"the Kafka broker did not start within {self._start_timeout_s:g} s; its log ends with:\n{self.log_tail()}")
            time.sleep(0.05)

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_STOP_TIMEOUT_S)
            assert process.stdin is not None
            try:
                process.stdin.write(b"\n")
                process.stdin.close()
            except BrokenPipeError:
                pass
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def _path(self, name: str) -> Path:
        if self._directory is None:
            raise RuntimeError("this broker is not started")
        return self._directory / name

    def _server_properties(self, controller_port: int) -> dict[str, str]:
        addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        advertised = ",".join(f"{name}://127.0.0.1:{self._listeners[name].advertised_port or port}" for name, port in self._ports.items())
        protocols = ",".join(f"{name}:{listener.security_protocol}" for name, listener in self._listeners.items())
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": _PLAIN_LISTENER,
            "log.dirs": str(self._path("data")),
            "log.segment.bytes": str(64 << 20),
            "log.cleaner.enable": "false",  # its buffer alone is 128 MiB
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",  # as quick as tests are
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
            "num.network.threads": "2",
            "num.io.threads": "4",
        }
        for listener in self._listeners.values():
            settings |= listener.server_properties(self._path(""))
        return {**settings, **self._settings}


def _checked_scram_users(users: Mapping[str, str]) -> dict[str, str]:
    for user, password in users.items():
        if set(user + password) & set(',"[]'):  # Kafka's storage tool splits there
            raise ValueError(f"the name and password of SCRAM user {user!r} may not contain a comma, a quotation mark or a bracket")
    return dict(users)


def _free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now, all different; another process may still take one before the broker does."""
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
        "handlers=java.util.logging.FileHandler\n.level=WARNING\nkafka.server.KafkaRaftServer.level=INFO\n"
        f"java.util.logging.FileHandler.pattern={log}\n"
        "java.util.logging.FileHandler.formatter=java.util.logging.SimpleFormatter\n"
        "java.util.logging.SimpleFormatter.format=%1$tF %1$tT.%1$tL %4$s %3$s %5$s %6$s%n\n"
    )


def main() -> None:
    """Run a broker in the foreground until Ctrl-C or SIGTERM, and print its address."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        with RealKafka() as kafka:
            print(kafka.bootstrap_servers, flush=True)
            signal.pause()
    except SetupError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
