"""The part of Kubernetes that Spark uses: an API server with one namespace, and a node that runs
each pod as a process of this machine. They listen on 127.0.0.1 only.
"""

from __future__ import annotations

import copy
import json
import re
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from aioprod.demo.spark_cluster import signal_group, watched

Object = dict[str, Any]

_PATH = re.compile(r"/api/v1/namespaces/default/(\w+)(?:/([^/]+))?")
_KINDS = {"pods": "Pod", "services": "Service", "configmaps": "ConfigMap"}
_ADDRESS = "127.0.0.1"
_STOP_LIMIT_S = 10.0
_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


class Objects:
    """The objects of the namespace, by plural and name, and their changes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._objects: dict[tuple[str, str], Object] = {}
        self._changes: list[tuple[str, str, Object]] = []
        self._closed = False

    def put(self, plural: str, given: Object) -> Object:
        """Create or replace an object."""
        with self._changed:
            place = (plural, given["metadata"]["name"])
            kind = "MODIFIED" if place in self._objects else "ADDED"
            metadata = {"namespace": "default", "uid": str(uuid.uuid4()), **given["metadata"]}
            self._objects[place] = {"status": {"phase": "Pending"}, **given, "metadata": metadata}
            return self._note(kind, *place)

    def set_status(self, name: str, status: Object) -> None:
        """Change the status of a pod, if it exists."""
        with self._changed:
            if pod := self._objects.get(("pods", name)):
                pod["status"] = status
                self._note("MODIFIED", "pods", name)

    def delete(self, plural: str, name: str) -> Object | None:
        """Delete an object, and return it."""
        with self._changed:
            if (plural, name) not in self._objects:
                return None
            found = self._note("DELETED", plural, name)
            del self._objects[plural, name]
            return found

    def get(self, plural: str, name: str) -> Object | None:
        with self._changed:
            return copy.deepcopy(self._objects.get((plural, name)))

    def select(self, plural: str, labels: Object) -> list[Object]:
        """Return the objects that have these labels."""
        with self._changed:
            found = [each for (kind, _), each in self._objects.items() if kind == plural]
            return copy.deepcopy([each for each in found if _has(each, labels)])

    @property
    def version(self) -> int:
        """The number of changes so far."""
        with self._changed:
            return len(self._changes)

    def changes(self, plural: str, labels: Object, after: int) -> Iterator[tuple[str, Object]]:
        """Yield the changes after that number, until `close`."""
        while True:
            with self._changed:
                while not self._closed and len(self._changes) <= after:
                    self._changed.wait()
                if self._closed:
                    return
                fresh, after = self._changes[after:], len(self._changes)
            for kind, of, each in fresh:
                if of == plural and _has(each, labels):
                    yield kind, each

    def ever(self, plural: str) -> list[Object]:
        """Return all objects as they were created, including deleted ones."""
        with self._changed:
            return [each for kind, of, each in self._changes if (kind, of) == ("ADDED", plural)]

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _note(self, kind: str, plural: str, name: str) -> Object:
        each = self._objects[plural, name]
        each["metadata"]["resourceVersion"] = str(len(self._changes) + 1)
        noted = copy.deepcopy(each)
        self._changes.append((kind, plural, noted))
        self._changed.notify_all()
        return noted


def _has(each: Object, labels: Object) -> bool:
    own: Object = each["metadata"].get("labels", {})
    return labels.items() <= own.items()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        with self.server.log.open("a") as log:
            log.write(f"{format % args}\n")

    def do_GET(self) -> None:
        if self.headers.get("Upgrade"):
            return self._reply(None)  # no WebSocket: Kubernetes' clients then use plain HTTP
        plural, name = self._place()
        if name is not None:
            return self._reply(self.server.objects.get(plural, name))
        if "watch" in self._query:
            return self._watch(plural)
        version = str(self.server.objects.version)
        return self._reply(
            {
                "apiVersion": "v1",
                "kind": f"{_KINDS.get(plural, plural)}List",
                "metadata": {"resourceVersion": version},
                "items": self.server.objects.select(plural, self._labels),
            }
        )

    def do_POST(self) -> None:
        self._reply(self.server.objects.put(self._place()[0], self._body()), 201)

    def do_PUT(self) -> None:
        self._reply(self.server.objects.put(self._place()[0], self._body()))

    def do_PATCH(self) -> None:
        plural, name = self._place()
        body = self._body()
        if "apply-patch" in self.headers["Content-Type"]:
            self._reply(self.server.objects.put(plural, body))
        else:
            self._reply(self.server.objects.get(plural, name or ""))

    def do_DELETE(self) -> None:
        self._body()
        plural, name = self._place()
        for each in self.server.objects.select(plural, self._labels) if name is None else ():
            self.server.objects.delete(plural, each["metadata"]["name"])
        found = None if name is None else self.server.objects.delete(plural, name)
        self._reply(found or {"apiVersion": "v1", "kind": "Status", "status": "Success"})

    @property
    def _query(self) -> dict[str, str]:
        return {name: each[-1] for name, each in parse_qs(urlsplit(self.path).query).items()}

    @property
    def _labels(self) -> Object:
        """The labels that the request selects. Those that it excludes are never set here."""
        given = self._query.get("labelSelector", "").split(",")
        return dict(each.split("=") for each in given if each and "!=" not in each)

    def _place(self) -> tuple[str, str | None]:
        found = _PATH.fullmatch(urlsplit(self.path).path)
        return ("unknown", "unknown") if found is None else (found[1], found[2])

    def _body(self) -> Object:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body: Object = json.loads(text or b"{}")
        return body

    def _reply(self, body: Object | None, status: int = 200) -> None:
        if body is None and not self.headers.get("Upgrade"):
            body, status = {"apiVersion": "v1", "kind": "Status", "code": 404}, 404
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _watch(self, plural: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        name = self._query.get("fieldSelector", "").partition("metadata.name=")[2]
        after = int(self._query.get("resourceVersion") or 0)
        for kind, each in self.server.objects.changes(plural, self._labels, after):
            if not name or each["metadata"]["name"] == name:
                line = json.dumps({"type": kind, "object": each}).encode() + b"\n"
                try:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                except OSError:  # the client has ended
                    break
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, objects: Objects, log: Path) -> None:
        super().__init__((_ADDRESS, 0), _Handler)
        self.objects = objects
        self.log = log


class KubernetesCluster:
    """The cluster of a context manager's block. Its pods end with the block, or with this process.

    Attributes:
        objects: all that Spark has created.
        master: Spark's master URL.
        settings: arguments for `spark-submit` without the names and memory of a real cluster.
    """

    def __init__(
        self, directory: Path, files: Mapping[str, Path], environment: Mapping[str, str]
    ) -> None:
        """Keep the logs and the volumes of pods in ``directory``. ``files`` and ``environment``
        are those of the image: directories by their paths in it, and variables.
        """
        self._directory = directory
        self._files = files
        self._environment = environment
        self._hosts = directory / "hosts"
        self._pods: dict[str, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.objects = Objects()
        self.master = ""
        self.settings: list[str] = []

    def __enter__(self) -> Self:
        self._directory.mkdir()
        self._server = _Server(self.objects, self._directory / "requests.log")
        address = f"http://{_ADDRESS}:{self._server.server_port}"
        self.master = f"k8s://{address}"
        given = {"spark.kubernetes.driver.master": address, **_SETTINGS}
        self.settings = [part for name in given for part in ("--conf", f"{name}={given[name]}")]
        self._start(self._server.serve_forever)
        self._start(self._node)
        return self

    def __exit__(self, *_: object) -> None:
        self.objects.close()
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for process in self._pods.values():
                signal_group(process, signal.SIGKILL)
        for thread in self._threads:
            thread.join(_STOP_LIMIT_S)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _node(self) -> None:
        for kind, pod in self.objects.changes("pods", {}, 0):
            name = pod["metadata"]["name"]
            if kind == "ADDED":
                self._start(self._run, pod)
            elif kind == "DELETED":
                with self._lock:
                    if name in self._pods:
                        signal_group(self._pods[name], signal.SIGKILL)

    def _run(self, pod: Object) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        paths = self._volumes(pod)
        self._name_services()
        environment = self._variables(container, paths)
        command = _entry_point([_replaced(each, paths) for each in container["args"]], environment)
        home = self._directory / name
        home.mkdir(exist_ok=True)
        with (home / "pod.log").open("wb") as log, self._lock:
            process = subprocess.Popen(
                watched(command),
                cwd=home,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._pods[name] = process
        self.objects.set_status(name, _status(container["name"], None))
        status = process.wait()
        signal_group(process, signal.SIGKILL)  # the watcher
        assert process.stdin is not None
        process.stdin.close()
        self.objects.set_status(name, _status(container["name"], status))

    def _volumes(self, pod: Object) -> dict[str, Path]:
        """Return the directories by their paths in the pod. Wait for its configuration, which
        Spark creates later than the pod.
        """
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", ())}
        paths = dict(self._files)
        for mount in pod["spec"]["containers"][0].get("volumeMounts", ()):
            directory = self._directory / pod["metadata"]["name"] / mount["name"]
            directory.mkdir(parents=True)
            paths[mount["mountPath"]] = directory
            if map_of := volumes[mount["name"]].get("configMap"):
                for file, text in self._config_map(map_of["name"])["data"].items():
                    (directory / file).write_text(_replaced(text, paths))
        return paths

    def _config_map(self, name: str) -> Object:
        changes = self.objects.changes("configmaps", {}, 0)
        return next(each for _, each in changes if each["metadata"]["name"] == name)

    def _name_services(self) -> None:
        """Write the names of the services, as Kubernetes' DNS has them."""
        names = [each["metadata"]["name"] for each in self.objects.select("services", {})]
        hosts = ["localhost", socket.gethostname(), *(f"{name}.default.svc" for name in names)]
        self._hosts.write_text("".join(f"{_ADDRESS} {host}\n" for host in hosts))

    def _variables(self, container: Object, paths: Mapping[str, Path]) -> dict[str, str]:
        given = {
            each["name"]: _replaced(each.get("value") or _field(each), paths)
            for each in container["env"]
        }
        return {
            **self._environment,
            "JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={self._hosts}",
            **given,
        }


def _field(variable: Object) -> str:
    field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
    return _ADDRESS if field == "status.podIP" else ""


def _replaced(text: str, paths: Mapping[str, Path]) -> str:
    for path, directory in paths.items():
        text = text.replace(path, str(directory))
    return text


def _entry_point(arguments: list[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command of a pod, as entrypoint.sh of Spark's images builds it."""
    home = environment["SPARK_HOME"]
    if arguments[0] == "driver":
        address = f"spark.driver.bindAddress={environment['SPARK_DRIVER_BIND_ADDRESS']}"
        submit = [f"{home}/bin/spark-submit", "--conf", address, "--deploy-mode", "client"]
        return [*submit, *arguments[1:]]
    options = [environment[name] for name in environment if name.startswith("SPARK_JAVA_OPT_")]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    named = {
        "driver-url": "SPARK_DRIVER_URL",
        "executor-id": "SPARK_EXECUTOR_ID",
        "cores": "SPARK_EXECUTOR_CORES",
        "app-id": "SPARK_APPLICATION_ID",
        "hostname": "SPARK_EXECUTOR_POD_IP",
        "resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "podName": "SPARK_EXECUTOR_POD_NAME",
    }
    return [
        f"{environment['JAVA_HOME']}/bin/java",
        *options,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", f"{environment['SPARK_CONF_DIR']}:{home}/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *(part for name, value in named.items() for part in (f"--{name}", environment[value])),
    ]


def _status(container: str, exit_status: int | None) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    state: Object = {"running": {"startedAt": now}}
    phase = "Running"
    if exit_status is not None:
        state = {"terminated": {"exitCode": exit_status, "startedAt": now, "finishedAt": now}}
        phase = "Failed" if exit_status else "Succeeded"
    ready = exit_status is None
    one = {"name": container, "ready": ready, "restartCount": 0, "state": state}
    return {
        "phase": phase,
        "podIP": _ADDRESS,
        "startTime": now,
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [one],
    }
