"""The jars of real Kafka brokers, of Kafka's tools and of Spark's connector, in the user's cache
and verified against the checksums in ``jars_lock.json``.

Maven downloads them if it is installed, otherwise Apache Ivy, which is part of PySpark's wheel.
Both get the exact list, so neither resolves versions, and both use the repositories that this
machine is configured for.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aioprod.testing.cache import SetupError, cache_dir, locked, sha256_of
from aioprod.testing.java import find_java, home_of, is_from_wheel
from aioprod.testing.trust_store import PASSWORD, machine_certificates, write_trust_store

KAFKA_VERSIONS = ("4.4.0", "4.1.0", "3.9.2")
"""The supported versions of Apache Kafka, the default first."""

_TOOLS_VERSION = "4.1.0"
"""Kafka's command line tools of 4.4.0 are not in Maven's central repository."""

FETCH_TIMEOUT_S = 300
"""The timeout of one way to fetch, Maven or Ivy."""

_LOCK_FILE = Path(__file__).with_name("jars_lock.json")
_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_IVY_JARS = ("ivy-*.jar", "commons-cli-*.jar")


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact: its coordinates in a Maven repository and its SHA-256 checksum."""

    path: str
    sha256: str

    @property
    def file_name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def coordinates(self) -> tuple[str, str, str]:
        """Group, artifact and version."""
        *group, artifact, version, _ = self.path.split("/")
        return ".".join(group), artifact, version


Way = Callable[[Sequence[Jar], Path], None]
"""Fetches the jars into a directory; raises SetupError."""


def kafka_jars(version: str = KAFKA_VERSIONS[0]) -> list[Path]:
    """Return the jars of a version of Apache Kafka's broker, and one that writes its log to a file.
    The first call fetches 45 MB.

    Raises:
        SetupError: if they can't be downloaded or a checksum does not match.
        ValueError: if the version is not one of ``KAFKA_VERSIONS``.
    """
    if version not in KAFKA_VERSIONS:
        raise ValueError(f"version={version!r}: must be one of {', '.join(KAFKA_VERSIONS)}")
    return fetch(f"kafka-{version}", locked_jars(f"kafka-{version}"), ways())


def kafka_tools_jars() -> list[Path]:
    """Return the jars of Kafka 4.1.0's command line tools, such as the verifiable clients and the
    console clients.

    Raises:
        SetupError: see :func:`kafka_jars`.
    """
    name = f"kafka-tools-{_TOOLS_VERSION}"
    return [*kafka_jars(_TOOLS_VERSION), *fetch(name, locked_jars(name), ways())]


def spark_kafka_connector_jars() -> list[Path]:
    """Return the five jars of Spark's Kafka connector for ``spark.jars`` (Scala 2.13, for PySpark
    4.2 and 4.3). The first call fetches 11 MB.

    Raises:
        SetupError: see :func:`kafka_jars`.
    """
    return fetch("spark-kafka-connector-4.2.0", locked_jars("spark-kafka-connector"), ways())


def locked_jars(name: str) -> list[Jar]:
    """Return the list ``name`` of the lock file."""
    content: dict[str, dict[str, str]] = json.loads(_LOCK_FILE.read_text())
    return [Jar(path, sha256) for path, sha256 in content[name].items()]


def fetch(name: str, jars: Sequence[Jar], ways: Mapping[str, Way]) -> list[Path]:
    """Verify ``jars`` in the cache's directory ``name`` and return their paths. If one is missing
    or differs, download all with the first of ``ways`` that works.

    Raises:
        SetupError: if all ways fail, with the reason for each.
    """
    target = cache_dir() / name
    if faults(target, jars):
        with locked(cache_dir() / f"{name}.lock", timeout_s=2 * FETCH_TIMEOUT_S + 60):
            if faults(target, jars):  # unless another process has just fetched them
                _fetch_into(target, jars, ways)
    return [target / jar.file_name for jar in jars]


def faults(directory: Path, jars: Sequence[Jar]) -> list[str]:
    """Return a line for each jar that is missing in ``directory`` or whose checksum does not
    match.
    """
    found = []
    for jar in jars:
        try:
            actual = sha256_of(directory / jar.file_name)
        except FileNotFoundError:
            found.append(f"{jar.file_name} is missing")
            continue
        if actual != jar.sha256:
            found.append(f"{jar.file_name} has the SHA-256 sum {actual}, not {jar.sha256}")
    return found


def _fetch_into(target: Path, jars: Sequence[Jar], ways: Mapping[str, Way]) -> None:
    failures = []
    for way, run in ways.items():
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as temporary:
            fetched = Path(temporary, "jars")
            fetched.mkdir()
            try:
                run(jars, fetched)
                if wrong := faults(fetched, jars):
                    raise SetupError("; ".join(wrong))
            except SetupError as error:
                failures.append(f"{way}: {error}")
                continue
            if target.exists():
                target.rename(Path(temporary, "old"))
            fetched.rename(target)
            return
    tried = (
        "\n".join(failures)
        or "neither Maven (mvn on PATH) nor PySpark, whose wheel contains Apache Ivy, is installed"
    )
    hint = "Install Maven, or PySpark: python -m pip install 'aioprod[spark]'"
    raise SetupError(f"cannot fetch the {len(jars)} jars of {target.name}: {tried}\n{hint}")


def ways() -> dict[str, Way]:
    """Return the ways to download jars on this machine, fastest first."""
    found: dict[str, Way] = {}
    if shutil.which("mvn"):
        found["Maven"] = fetch_by_maven
    if _ivy_class_path():
        found["Ivy"] = fetch_by_ivy
    return found


def fetch_by_maven(jars: Sequence[Jar], directory: Path) -> None:
    """Download with Maven, using the user's settings and local repository."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>\n"
        for group, artifact, version in (jar.coordinates for jar in jars)
    )
    with tempfile.TemporaryDirectory(prefix="aioprod-maven-") as temporary:
        pom = Path(temporary, "pom.xml")
        pom.write_text(
            "<project "
            'xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
            "<groupId>aioprod</groupId><artifactId>jars</artifactId><version>1</version>\n"
            f"<dependencies>\n{dependencies}</dependencies></project>\n"
        )
        java = find_java()
        options = " ".join(
            [os.environ.get("MAVEN_OPTS", ""), *_trust_options(java, Path(temporary))]
        ).strip()
        mvn = shutil.which("mvn") or "mvn"
        _run(
            [
                mvn,
                "-q",
                "-B",
                "-f",
                str(pom),
                f"{_DEPENDENCY_PLUGIN}:copy-dependencies",
                f"-DoutputDirectory={directory}",
            ],
            {"JAVA_HOME": str(home_of(java)), "MAVEN_OPTS": options},
        )


def fetch_by_ivy(jars: Sequence[Jar], directory: Path) -> None:
    """Download with Apache Ivy from PySpark's wheel, one jar after another. Nothing is stored in
    the user's Ivy directory.
    """
    dependencies = "".join(
        (
            f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false" '
            'conf="default->default"/>\n'
        )
        for group, artifact, version in (jar.coordinates for jar in jars)
    )
    with tempfile.TemporaryDirectory(prefix="aioprod-ivy-") as temporary:
        module = Path(temporary, "ivy.xml")
        module.write_text(
            '<ivy-module version="2.0"><info organisation="aioprod" module="jars"/>\n'
            '<configurations><conf name="default"/></configurations>\n<dependencies>\n'
            f"{dependencies}</dependencies></ivy-module>\n"
        )
        java = find_java()
        # Don't filter by type: some jars, such as Kafka's own, have the type "bundle" and would be
        # skipped.
        _run(
            [
                str(java),
                *_trust_options(java, Path(temporary)),
                f"-Divy.default.ivy.user.dir={temporary}/user",
                "-cp",
                _ivy_class_path(),
                "org.apache.ivy.Main",
                "-warn",
                "-ivy",
                str(module),
                "-confs",
                "default",
                "-retrieve",
                f"{directory}/[artifact]-[revision].[ext]",
            ],
            {},
        )


def _ivy_class_path() -> str:
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        found = [sorted(Path(location, "jars").glob(pattern)) for pattern in _IVY_JARS]
        if found[0]:
            return os.pathsep.join(str(path) for paths in found for path in paths)
    return ""


def _trust_options(java: Path, directory: Path) -> list[str]:
    certificates = machine_certificates() if is_from_wheel(java) else []
    if not certificates:
        return []
    store = directory / "cacerts"
    write_trust_store(store, certificates)
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            env={**os.environ, **environment},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"not done within {FETCH_TIMEOUT_S} s") from None
    except OSError as error:
        raise SetupError(str(error)) from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise SetupError(f"exit status {done.returncode}\n{tail}")
