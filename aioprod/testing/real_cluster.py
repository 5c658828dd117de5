"""A real Apache Kafka cluster (KRaft) on this machine, whose nodes can be killed, frozen, shut down
and restarted.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Self

from aioprod.testing.cache import SetupError
from aioprod.testing.jars import KAFKA_VERSIONS
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.kafka_process import (
    QUICK_START,
    KafkaProcess,
    free_ports,
    new_cluster_id,
    node_settings,
    replica_settings,
)

__all__ = ["RealCluster"]

_PORT_TAKEN = "Address already in use"
_PORT_ATTEMPTS = 3
_PLAIN_LISTENER = "PLAINTEXT"
_MOST_REPLICAS = 3
_FIRST_NODE_ID = 1
_NEAREST_REPLICA = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class RealCluster:
    """Kafka nodes (combined broker and controller) in separate processes, on free ports of
    127.0.0.1, with their data in a temporary directory.

    Its calls block; in asyncio code, use ``asyncio.to_thread``. The processes end and their data is
    removed when the ``with`` block or this process ends, even if this process is killed.

    Args:
        nodes: the number of nodes; their ids are 1, 2, ... Topics have three replicas, or as many
            as there are nodes, and ``min.insync.replicas=2`` (1 for a single node).
        version: one of ``aioprod.testing.jars.KAFKA_VERSIONS``.
        heap_mb: each JVM's maximum heap size in MiB.
        session_timeout_ms: Kafka's ``broker.session.timeout.ms``: a node that is silent for this
            time loses its leaderships. Kafka's default is 9000.
        listeners: a function that returns the additional listeners of a node id.
        scram_users: passwords by user name, for both SCRAM mechanisms. Use made-up passwords: the
            process list shows them while the data directories are formatted.
        settings: more lines for ``server.properties``, by Kafka's names.
        racks: a function that returns the rack of a node id (``broker.rack``). Consumers that set
            their rack then read from a replica in it (KIP-392).
        start_timeout_s: the longest time to wait until a node is ready, in seconds.
        java_options: options of each JVM; the default makes it start quickly.
        plugins: jars with classes that ``settings`` name, such as metrics reporters.

    Raises:
        ValueError: if an argument is invalid.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        version: str = KAFKA_VERSIONS[0],
        heap_mb: int = 320,
        session_timeout_ms: int = 3_000,
        listeners: Callable[[int], Sequence[Listener]] = lambda _: (),
        scram_users: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        racks: Callable[[int], str] | None = None,
        start_timeout_s: float = 90,
        java_options: Sequence[str] = QUICK_START,
        plugins: Sequence[Path] = (),
    ) -> None:
        if version not in KAFKA_VERSIONS:
            raise ValueError(f"version={version!r}: must be one of {', '.join(KAFKA_VERSIONS)}")
        self.node_ids: tuple[int, ...] = tuple(range(_FIRST_NODE_ID, _FIRST_NODE_ID + nodes))
        self._version = version
        self._heap_mb = heap_mb
        self._listeners = {
            node_id: [Listener(name=_PLAIN_LISTENER), *listeners(node_id)]
            for node_id in self.node_ids
        }
        for named in self._listeners.values():
            if len({listener.name.upper() for listener in named} - {"CONTROLLER"}) != len(named):
                raise ValueError(
                    f"each listener needs a different name, other than {_PLAIN_LISTENER} and "
                    "CONTROLLER"
                )
        self._scram_users = _checked_scram_users(scram_users or {})
        self._settings = {
            **replica_settings(min(nodes, _MOST_REPLICAS), min(nodes, 2)),
            "broker.session.timeout.ms": str(session_timeout_ms),
            "broker.heartbeat.interval.ms": str(max(1, session_timeout_ms // 6)),
            **({"replica.selector.class": _NEAREST_REPLICA} if racks else {}),
            **(settings or {}),
        }
        self._racks = (
            {node_id: {"broker.rack": racks(node_id)} for node_id in self.node_ids} if racks else {}
        )
        self._start_timeout_s = start_timeout_s
        self._java_options = java_options
        self._plugins = tuple(plugins)
        self._directory: Path | None = None
        self._processes: dict[int, KafkaProcess] = {}
        self._ports: dict[int, dict[str, int]] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses ``127.0.0.1:PORT,...`` of all nodes' plain listeners, whether the nodes are
        running or not. Raises RuntimeError if the cluster is not started.
        """
        return self.bootstrap_servers_of(_PLAIN_LISTENER)

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return the addresses of all nodes' listeners with this name.

        Raises:
            RuntimeError: if the cluster is not started.
            KeyError: if the listener does not exist.
        """
        return ",".join(self.address(node_id, listener) for node_id in self.node_ids)

    def address(self, node_id: int, listener: str = _PLAIN_LISTENER) -> str:
        """Return a node's address, ``127.0.0.1:PORT``. A node keeps its ports while it is stopped.
        Raises the same errors as :meth:`bootstrap_servers_of`.
        """
        self._process(node_id)
        return f"127.0.0.1:{self._ports[node_id][listener]}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Fetch the jars if they are missing, start all nodes and wait until they are ready.

        Raises:
            SetupError: if Java or the jars are not available, or a node is not ready in time. The
                message has the end of its log.
        """
        if self._processes:
            raise RuntimeError("this broker is already started")
        if os.name != "posix":
            raise SetupError(
                "a real Kafka broker is started only on Linux and macOS; on Windows use WSL, "
                "or give the address of a running broker"
            )
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
        """Kill all nodes and remove their data. Do nothing if the cluster is not started."""
        atexit.unregister(self.stop)
        self._discard()

    # -- single nodes ------------------------------------------------------------------------------

    def kill(self, *node_ids: int) -> None:
        """Kill nodes at once (SIGKILL) and wait until they have ended."""
        for node_id in node_ids:
            self._process(node_id).kill()

    def pause(self, *node_ids: int) -> None:
        """Freeze nodes (SIGSTOP): their sockets stay open, but they do not respond. Raise
        RuntimeError if one is not running.
        """
        for node_id in node_ids:
            self._process(node_id).signal(signal.SIGSTOP)

    def resume(self, *node_ids: int) -> None:
        """Let frozen nodes continue (SIGCONT). Raise RuntimeError if one is not running."""
        for node_id in node_ids:
            self._process(node_id).signal(signal.SIGCONT)

    def terminate(self, node_id: int, timeout_s: float = 30) -> None:
        """Shut a node down cleanly (SIGTERM): it moves its leaderships first.

        Raises:
            RuntimeError: if it is not running.
            TimeoutError: if it is still running after ``timeout_s`` seconds.
        """
        self._process(node_id).terminate(timeout_s)

    def restart(self, *node_ids: int) -> None:
        """Kill nodes if they are running, start them with their data and ports, and wait until all
        are ready.

        Raises:
            SetupError: if one is not ready in time. If another process took its port, it is started
                again first.
        """
        for attempt in range(_PORT_ATTEMPTS):
            try:
                self._launch([self._process(node_id) for node_id in node_ids])
                return
            except SetupError as error:
                if _PORT_TAKEN not in str(error) or attempt + 1 == _PORT_ATTEMPTS:
                    raise

    def runs(self, node_id: int) -> bool:
        """Return whether a node's process is running or frozen."""
        return self._process(node_id).pid is not None

    def active_controller(self) -> int:
        """Return the id of the active controller according to the nodes' files, or 0 if it is
        unknown.
        """
        newest: tuple[int, int] = (-1, 0)
        for node_id in self.node_ids:
            try:
                state = json.loads(
                    (
                        self._node_directory(node_id)
                        / "data"
                        / "__cluster_metadata-0"
                        / "quorum-state"
                    ).read_text()
                )
            except (OSError, ValueError):
                continue  # being written
            newest = max(newest, (int(state["leaderEpoch"]), int(state["leaderId"])))
        return max(newest[1], 0)

    def log_tail(self, lines: int = 25, node_id: int = _FIRST_NODE_ID) -> str:
        """Return the last lines of a node's log. Raise RuntimeError if the cluster is not
        started.
        """
        return self._process(node_id).log_tail(lines)

    # -- internal ----------------------------------------------------------------------------------

    def _process(self, node_id: int) -> KafkaProcess:
        if node_id not in self.node_ids:
            raise ValueError(
                f"node_id={node_id}: must be one of {', '.join(map(str, self.node_ids))}"
            )
        process = self._processes.get(node_id)
        if process is None:
            raise RuntimeError("this broker is not started")
        return process

    def _start_once(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="aioprod-kafka-"))
        names = {
            node_id: [listener.name for listener in listeners]
            for node_id, listeners in self._listeners.items()
        }
        *ports, last_controller_port = free_ports(sum(len(listed) + 1 for listed in names.values()))
        self._ports = {
            node_id: {name: ports.pop(0) for name in listed} for node_id, listed in names.items()
        }
        voters = dict(zip(self.node_ids, [*ports, last_controller_port], strict=True))
        for node_id, listeners in self._listeners.items():
            directory = self._node_directory(node_id)
            directory.mkdir()
            settings = node_settings(
                node_id, directory, voters=voters, ports=self._ports[node_id], listeners=listeners
            )
            settings |= self._racks.get(node_id, {}) | self._settings
            process = KafkaProcess(
                directory,
                settings,
                version=self._version,
                heap_mb=self._heap_mb,
                remove=self._directory,
                java_options=self._java_options,
                plugins=self._plugins,
            )
            self._processes[node_id] = process
        cluster_id = new_cluster_id()
        for process in self._processes.values():
            process.prepare(cluster_id, self._scram_users)
        self._launch(self._processes.values())

    def _launch(self, processes: Collection[KafkaProcess]) -> None:
        for process in processes:
            process.kill()
            process.launch()
        for process in processes:
            process.wait_until_started(self._start_timeout_s)

    def _discard(self) -> None:
        processes, self._processes = self._processes, {}
        for process in processes.values():
            process.kill()
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def _node_directory(self, node_id: int) -> Path:
        assert self._directory is not None
        return self._directory / f"node{node_id}"


def _checked_scram_users(users: Mapping[str, str]) -> dict[str, str]:
    for user, password in users.items():
        if set(user + password) & set(',"[]'):  # Kafka's storage tool splits at these
            raise ValueError(
                f"the name and password of SCRAM user {user!r} may not contain a comma, a "
                "quotation mark or a bracket"
            )
    return dict(users)
