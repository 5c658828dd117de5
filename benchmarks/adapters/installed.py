"""The commands of the programs of other ecosystems.

What they need is fetched with pinned versions and sums into the user's caches: Go's module cache,
and ``aioprod`` in the user's cache directory for the rest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from aioprod.testing.cache import SetupError, cache_dir, locked, sha256_of
from aioprod.testing.jars import KAFKA_VERSIONS, fetch, kafka_jars, locked_jars, ways
from aioprod.testing.java import find_java

_PROGRAMS = Path(__file__).parents[1] / "programs"
_TIMEOUT_S = 600
# As in Kafka's start script.
_JVM_OPTIONS = (
    "-Xmx512M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)


def franz_go() -> Sequence[str]:
    """Return the program with franz-go. Raises the same errors as :func:`go_program`."""
    return [str(go_program(_PROGRAMS / "franz_go", "benchmarks-franz-go"))]


def go_program(source: Path, name: str) -> Path:
    """Compile a Go program into the user's cache and return it. The first time fetches modules.

    Raises:
        SetupError: if Go is not installed, or the compilation fails.
    """
    go = _found("go", "Go 1.26")
    program = cache_dir() / name
    with locked(program.with_suffix(".lock"), _TIMEOUT_S):
        _run(
            [go, "build", "-o", str(program), "."],
            source,
            {"GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"},
        )
    return program


def java() -> Sequence[str]:
    """Return the program with Kafka's Java client, which Java compiles when it starts.

    Raises:
        SetupError: if there is no JDK, or the jars can't be fetched.
    """
    return [*_java_program("Client.java", kafka_jars()), KAFKA_VERSIONS[0]]


def java_share_consumer() -> Sequence[str]:
    """Return the program with Kafka's Java share consumer.

    Raises:
        SetupError: see :func:`java`.
    """
    return [*_java_program("Sharing.java", kafka_jars()), KAFKA_VERSIONS[0]]


def parallel_consumer() -> Sequence[str]:
    """Return the program with Confluent's parallel-consumer.

    Raises:
        SetupError: see :func:`java`.
    """
    jars = locked_jars("parallel-consumer")
    [version] = (jar.coordinates[2] for jar in jars if "parallel-consumer-core" in jar.path)
    fetched = fetch(f"parallel-consumer-{version}", jars, ways())
    return [*_java_program("Processing.java", fetched), version]


def _java_program(source: str, jars: Sequence[Path]) -> list[str]:
    binary = find_java()
    modules = _run([str(binary), "--list-modules"], _PROGRAMS, {})
    if "jdk.compiler@" not in modules:
        raise SetupError(f"{binary} has no compiler; install a JDK of Java 17 or newer")
    class_path = os.pathsep.join(map(str, jars))
    return [str(binary), *_JVM_OPTIONS, "-cp", class_path, str(_PROGRAMS / "java" / source)]


def node(client: str) -> Sequence[str]:
    """Return the program with a JavaScript client. The first time fetches packages, Node.js for
    Linux among them.

    Raises:
        SetupError: if npm is not installed, or the packages can't be fetched.
    """
    npm = _found("npm", "Node.js")
    source = _PROGRAMS / "node"
    lock = source / "package-lock.json"
    target = cache_dir() / f"benchmarks-node-{sha256_of(lock)[:12]}"
    with locked(target.with_suffix(".lock"), _TIMEOUT_S):
        target.mkdir(exist_ok=True)
        for file in source.iterdir():
            shutil.copy(file, target)
        complete = target / "complete"
        if not complete.exists():
            _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target, {})
            complete.touch()
    packaged = [str(path) for path in target.glob("node_modules/node-*/bin/node")]
    binary = (packaged or [_found("node", "Node.js")])[0]
    # A warning by kafkajs, which does not affect it.
    return [binary, "--disable-warning=TimeoutNegativeWarning", str(target / "main.mjs"), client]


def _found(tool: str, ecosystem: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise SetupError(f"{ecosystem} is not installed: no {tool} on PATH")
    return path


def _run(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    """Run a command and return its output.

    Raises:
        SetupError: if it fails; with its last lines.
    """
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"{command[0]} did not end within {_TIMEOUT_S} s") from None
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise SetupError(f"{command[0]} ended with exit status {done.returncode}:\n{tail}")
    return done.stdout
