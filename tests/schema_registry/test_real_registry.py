"""A registry that others wrote is the judge: Apicurio's, with its API for Confluent's clients.

On demand (``-m interop``), and in CI: the first run fetches 142 MB by Maven.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aioprod.schema_registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistry,
    SchemaRegistryError,
)
from aioprod.testing.cache import cache_dir, locked, sha256_of
from aioprod.testing.java import find_java
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry.messages import EXAMPLES

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

VERSION = "2.6.13.Final"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
ARCHIVE = f"apicurio-registry-app-{VERSION}-all.tar.gz"
SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
USER = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}],
}
NEWER = {**USER, "fields": [*USER["fields"], {"name": "n", "type": "int", "default": 0}]}


def unpacked() -> Path:
    """The directory of the registry's program, fetched and checked at the first call."""
    target = cache_dir() / f"apicurio-{VERSION}"
    with locked(cache_dir() / f"apicurio-{VERSION}.lock", timeout_s=600):
        if not target.exists():
            partial = target.with_suffix(".part")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
            command = ["mvn", "-q", "-B", plugin, f"-Dartifact={ARTIFACT}"]
            subprocess.run(
                [*command, f"-DoutputDirectory={partial}"], check=True, timeout=500, cwd=partial
            )
            assert sha256_of(partial / ARCHIVE) == SHA256
            with tarfile.open(partial / ARCHIVE) as archive:
                if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                    archive.extraction_filter = tarfile.data_filter
                archive.extractall(partial)
            (partial / ARCHIVE).unlink()
            partial.rename(target)
    return target


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running registry."""
    program = unpacked()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    log = tmp_path_factory.mktemp("apicurio") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(find_java()), "-Xmx384m", "-jar", f"apicurio-registry-app-{VERSION}-runner.jar"],
            cwd=program,
            env={**os.environ, "QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        _wait_until_it_serves(url, process, log)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def _wait_until_it_serves(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < ends:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"Apicurio does not serve: {log.read_text()[-2000:]}")


async def test_formats_and_references(apicurio: str) -> None:
    name = uuid.uuid4().hex
    async with SchemaRegistry(apicurio) as registry:
        data, _ = await AvroSerializer(registry, USER).serialize(name, {"name": "Ann"})
        found = await AvroDeserializer(registry, NEWER).deserialize(name, data)
        assert found == {"name": "Ann", "n": 0}

        reference = SchemaReference("shop.User", f"{name}-value", 1)
        pair = Schema('{"type":"array","items":"shop.User"}', references=(reference,))
        data, _ = await AvroSerializer(registry, pair).serialize(f"{name}2", [{"name": "Ann"}])
        assert await AvroDeserializer(registry).deserialize("t", data) == [{"name": "Ann"}]

        schema = {"title": "User", "type": "object", "properties": {"n": {"type": "integer"}}}
        data, _ = await JsonSchemaSerializer(registry, schema).serialize(f"{name}3", {"n": 5})
        assert await JsonSchemaDeserializer(registry).deserialize("t", data) == {"n": 5}

        for number, message in enumerate(EXAMPLES):
            serializer = ProtobufSerializer(registry, type(message))
            data, _ = await serializer.serialize(f"{name}-{number}", message)
            reader = ProtobufDeserializer(registry, type(message))
            assert await reader.deserialize("t", data) == message


async def conversation(url: str, subject: str) -> list[Any]:
    """Return the results of calls, or the codes of their errors."""
    reported: list[Any] = []

    async def note(call: Any) -> None:
        try:
            reported.append(await call)
        except SchemaRegistryError as error:
            reported.append((error.status, error.code))

    first, newer = Schema(json.dumps(USER)), Schema(json.dumps(NEWER))
    async with SchemaRegistry(url) as registry:
        await note(registry.versions(subject))
        await registry.register(subject, first)
        await note(registry.set_compatibility("BACKWARD", subject))
        await note(registry.get_compatibility(subject))
        await registry.register(subject, newer)
        await note(registry.versions(subject))
        await note(registry.get_version(subject, 7))
        await note(registry.get_schema(999_999))
        await note(registry.lookup(subject, Schema('"long"')))
        await note(registry.register(subject, Schema('"long"')))
        reported.append(bool(await registry.check_compatibility(subject, Schema('"long"'))))
        reported.append((await registry.lookup(subject, first)).version)
        reported.append((await registry.get_version(subject)).version)
        await note(registry.delete_version(subject, 2))
        await note(registry.versions(subject))
        # Apicurio answers 404 here if a version was deleted before.
        await registry.register(f"{subject}-2", first)
        await note(registry.delete_subject(f"{subject}-2"))
        await note(registry.versions(f"{subject}-2"))
    return reported


async def test_the_embedded_registry_answers_as_it_does(apicurio: str) -> None:
    subject = f"s-{uuid.uuid4().hex}"
    async with EmbeddedSchemaRegistry() as embedded:
        assert await conversation(embedded.url, subject) == await conversation(apicurio, subject)
