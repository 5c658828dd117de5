"""Other implementations of Avro, for the comparison: Java's, fastavro, confluent-kafka."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import os
import subprocess
import warnings
from pathlib import Path
from typing import Any, NamedTuple, Self

import fastavro

from aioprod.testing.java import find_java
from tests.schema_registry import confluent

PROGRAM = Path(__file__).parent / "java" / "AvroJudge.java"
_JARS = ("avro-1.", "jackson-", "slf4j-api-", "commons-compress-")


class Error(NamedTuple):
    """The error that an implementation raised."""

    text: str


def java_jars() -> list[Path]:
    """Return Java's Avro and what it needs, as PySpark has them."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return [
        each
        for each in sorted((Path(found.origin).parent / "jars").glob("*.jar"))
        if each.name.startswith(_JARS)
    ]


class JavaAvro:
    """A program of Java that reads many cases in one process."""

    def __init__(self) -> None:
        path = os.pathsep.join(map(str, java_jars()))
        self._process = subprocess.Popen(
            [str(find_java()), "-cp", path, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    def read(
        self,
        writer: Any,
        reader: Any = None,
        *,
        data: bytes | None = None,
        shown: str | None = None,
    ) -> tuple[bytes, Any] | Error:
        """Return the bytes by the reader's schema, and the JSON, of a record in bytes or JSON."""
        case = {"writer": json.dumps(writer)}
        if reader is not None:
            case["reader"] = json.dumps(reader)
        if data is not None:
            case["data"] = base64.b64encode(data).decode()
        if shown is not None:
            case["json"] = shown
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(case).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            return Error(answer["error"])
        # An empty record is nothing at all in Java's JSON.
        return base64.b64decode(answer["data"]), json.loads(answer["json"] or "{}")


def fastavro_bytes(schema: Any, value: Any) -> bytes | Error:
    """Return what fastavro writes."""
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    except Exception as error:
        return Error(repr(error))
    return out.getvalue()


def fastavro_value(writer: Any, reader: Any, data: bytes) -> Any:
    """Return what fastavro reads."""
    try:
        wanted = None if reader is None else fastavro.parse_schema(reader)
        return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(writer), wanted)
    except Exception as error:
        return Error(repr(error))


class Confluent:
    """confluent-kafka's serializer and deserializer, with its own registry in memory."""

    def __init__(self) -> None:
        self._client = confluent.SchemaRegistryClient.new_client({"url": "mock://avro-matrix"})
        self._topics = 0

    def bytes_and_value(self, writer: Any, reader: Any, value: Any) -> tuple[Any, Any]:
        """Return what it writes, without the schema's id, and what it reads of that."""
        self._topics += 1
        context = confluent.SerializationContext(f"t{self._topics}", confluent.MessageField.VALUE)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                serializer = confluent.AvroSerializer(self._client, json.dumps(writer))
                data = serializer(value, context)
        except Exception as error:
            return Error(repr(error)), Error(repr(error))
        if data is None:  # a null, which has no bytes
            return b"", None
        try:
            text = None if reader is None else json.dumps(reader)
            found = confluent.AvroDeserializer(self._client, text)(data, context)
        except Exception as error:
            return data[5:], Error(repr(error))
        return data[5:], found
