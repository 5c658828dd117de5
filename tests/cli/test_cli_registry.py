"""``aioprod produce`` and ``aioprod consume`` with a Schema Registry."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from anyio.from_thread import start_blocking_portal

from aioprod import Producer
from aioprod.schema_registry import AvroSerializer, Schema, SchemaRegistry
from aioprod.testing import ThreadedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.cli.conftest import Ended
from tests.schema_registry.messages import User

Run = Callable[..., Ended]
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "code", "type": "bytes", "default": ""},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    ],
}
LINES = [
    {"item": "tea", "note": None, "code": "\u00ff", "at": 1700000000000},
    {"item": "café", "note": {"string": "hot"}, "code": "", "at": 0},
]


class Registry:
    """An embedded registry on another thread."""

    def __init__(self, embedded: EmbeddedSchemaRegistry) -> None:
        self.url = embedded.url
        self.ids: dict[str, int] = {}


@pytest.fixture
def registry() -> Iterator[Registry]:
    """Has a schema of each type, as values; and one for keys."""
    user = User.DESCRIPTOR.file
    address = user.dependencies[0]

    async def fill(made: Registry) -> None:
        async with SchemaRegistry(made.url) as client:
            proto = [
                Schema(base64.b64encode(each.serialized_pb).decode(), "PROTOBUF")
                for each in (address, user)
            ]
            from aioprod.schema_registry import SchemaReference

            used = SchemaReference("shop/address.proto", "shop/address.proto", 1)
            for subject, schema in (
                ("orders-value", Schema(json.dumps(ORDER))),
                ("orders-key", Schema('"long"')),
                ("clicks-value", Schema('{"type": "object", "required": ["page"]}', "JSON")),
                ("shop/address.proto", proto[0]),
                ("users-value", Schema(proto[1].text, "PROTOBUF", (used,))),
            ):
                made.ids[subject] = (await client.register(subject, schema)).id

    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(portal.call(EmbeddedSchemaRegistry)) as embedded:
            made = Registry(embedded)
            portal.call(fill, made)
            yield made


def lines(*objects: object) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in objects).encode()


def values(run: Run, topic: str, registry: Registry, *arguments: str) -> list[object]:
    ended = run("consume", topic, "--exit", "--quiet", "--registry", registry.url, *arguments)
    assert (ended.status, ended.errors) == (0, "")
    return [json.loads(line) for line in ended.output.splitlines()]


def test_avro_there_and_back(
    run: Run, registry: Registry, threaded_broker: ThreadedCluster
) -> None:
    command = ("produce", "orders", "--registry", registry.url)
    ended = run(*command, given=lines(*LINES))
    assert (ended.status, ended.errors) == (0, "sent 2 records to orders\n")
    stored = [record.value or b"" for record in threaded_broker.records("orders")]
    prefix = b"\0" + registry.ids["orders-value"].to_bytes(4, "big")
    assert all(value.startswith(prefix) for value in stored)
    schema = fastavro.parse_schema(ORDER)
    first = fastavro.schemaless_reader(io.BytesIO(stored[0][5:]), schema, None)
    assert isinstance(first, dict) and (first["item"], first["code"]) == ("tea", b"\xff")
    read = values(run, "orders", registry)
    assert [line["value"] for line in read if isinstance(line, dict)] == LINES
    ended = run("consume", "orders", "-e", "-q", "--registry", registry.url, "--format", "%v\\n")
    assert [json.loads(line) for line in ended.output.splitlines()] == LINES


def test_what_consume_prints_can_be_produced(
    run: Run, registry: Registry, threaded_broker: ThreadedCluster
) -> None:
    given = lines(*({"key": number, "value": value} for number, value in enumerate(LINES)))
    options = ("--registry", registry.url, "--key-subject", "orders-key", "--format", "json")
    assert run("produce", "orders", *options, given=given).status == 0
    printed = run(
        "consume", "orders", "-e", "-q", "--registry", registry.url, "--decode", "both"
    ).output
    copied = run("produce", "copy", *options, "--subject", "orders-value", given=printed.encode())
    assert (copied.status, copied.errors) == (0, "sent 2 records to copy\n")
    records = [
        [(each.key, each.value) for each in threaded_broker.records(topic)]
        for topic in ("orders", "copy")
    ]
    assert records[0] == records[1] and len(records[0]) == 2
    assert [json.loads(line)["key"] for line in printed.splitlines()] == [0, 1]


def test_json_schema(run: Run, registry: Registry) -> None:
    command = ("produce", "clicks", "--registry", registry.url)
    assert run(*command, given=lines({"page": "/ä"})).status == 0
    (line,) = values(run, "clicks", registry)
    assert isinstance(line, dict) and line["value"] == {"page": "/ä"}
    ended = run(*command, given=lines({"page": "/"}, {"other": 1}))
    assert ended.status == 1 and "line 2: " in ended.errors and "violate 'required'" in ended.errors


def test_protobuf(run: Run, registry: Registry, threaded_broker: ThreadedCluster) -> None:
    user = {"name": "anna", "home": {"street": "High St"}, "at": "2026-01-31T08:00:00Z"}
    ended = run("produce", "users", "--registry", registry.url, given=lines(user))
    assert (ended.status, ended.errors) == (0, "sent 1 record to users\n")
    stored = threaded_broker.records("users")[0].value or b""
    assert User.FromString(stored[6:]).home.street == "High St"
    (line,) = values(run, "users", registry)
    assert isinstance(line, dict) and line["value"] == user


def test_what_does_not_fit_is_an_error(
    run: Run, registry: Registry, threaded_broker: ThreadedCluster
) -> None:
    where = ("--registry", registry.url)
    for topic, given, text in (
        ("orders", b'{"item": 1}\n', "line 1: "),
        ("orders", b"tea\n", "line 1: not JSON"),
        ("orders", b"[" * 9_000, "line 1: not JSON"),
        ("nothing", b"1\n", "nothing-value"),
    ):
        ended = run("produce", topic, *where, given=given)
        assert ended.status == 1 and text in ended.errors and "Traceback" not in ended.errors
    assert run("produce", "orders", given=b"plain\n").status == 0
    ended = run("consume", "orders", "--exit", *where)
    assert ended.status == 1 and "no schema id" in ended.errors


def test_lines_that_do_not_fit_the_schema_are_skipped_on_demand(
    run: Run, registry: Registry, threaded_broker: ThreadedCluster
) -> None:
    given = lines(LINES[0], {"item": 5}, LINES[1]) + b"no JSON\n"
    command = ("produce", "orders", "--registry", registry.url, "--skip-bad")
    status, _, errors = run(*command, given=given)
    assert status == 0 and len(threaded_broker.records("orders")) == 2
    assert "line 2 skipped: " in errors and "line 4 skipped: not JSON" in errors
    assert errors.splitlines()[-1] == "sent 2 records to orders, skipped 2 lines"


def test_an_error_of_the_registry_is_not_a_bad_line(run: Run, registry: Registry) -> None:
    """All lines would be skipped, and lost."""
    command = ("produce", "nothing", "--registry", registry.url, "--skip-bad")
    status, _, errors = run(*command, given=lines(1, 2))
    assert status == 1 and "skipped" not in errors and "sent 0 records to nothing, 2 not" in errors


def test_options_that_do_not_go_together(run: Run, tmp_path: Path) -> None:
    assert run("produce", "orders", "--subject", "x")[0] == 2
    assert run("consume", "orders", "--decode", "key")[0] == 2
    missing = f"@{tmp_path}/missing"
    status, _, errors = run("consume", "orders", "--registry", missing)
    assert status == 2 and missing in errors


def test_a_password_is_hidden_in_a_file(
    run: Run, registry: Registry, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    threaded_broker.create_topic("orders", 1)
    url = registry.url.replace("//", "//alice:hunter2@")
    assert "use @FILE" in run("consume", "orders", "-e", "--registry", url).errors
    file = tmp_path / "registry"
    file.write_text(url + "\n")
    ended = run("consume", "orders", "-e", "--registry", f"@{file}")
    assert (ended.status, ended.errors) == (0, "read 0 records\n")


PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "by", "type": [{**ORDER, "name": "A"}, {"type": "array", "items": "A"}]}],
}
NUMBERS = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "by", "type": ["null", "int", "long", "float", "double", "string", "bytes"]},
        {"name": "all", "type": {"type": "map", "values": ["float", "double"]}, "default": {}},
    ],
}


@pytest.mark.parametrize("in_header", [False, True])
def test_no_byte_changes_in_records_of_any_version(
    run: Run,
    registry: Registry,
    threaded_broker: ThreadedCluster,
    in_header: bool,
) -> None:
    async def fill() -> None:
        async with (
            SchemaRegistry(registry.url) as client,
            Producer(threaded_broker.bootstrap_servers) as producer,
        ):
            await client.set_compatibility("NONE")
            for number, (schema, values) in enumerate(VERSIONS):
                serializer = AvroSerializer(client, schema, id_in_header=in_header)
                for value in values:
                    data, headers = await serializer.serialize("pay", value)
                    await producer.send_and_wait(
                        "pay", data, headers=[*headers, ("n", b"%d" % number)]
                    )
            data, headers = await AvroSerializer(
                client, ["null", "string"], subject=lambda *_: "pay-value", id_in_header=in_header
            ).serialize("pay", "x")
            assert data is not None
            prefix = data if in_header else data[:5]
            null = b"\0" if in_header else prefix + b"\0"
            await producer.send_and_wait("pay", null, headers=headers)
            await producer.send_and_wait("pay", None)

    asyncio.run(fill())
    options = ("--registry", registry.url)
    printed = run("consume", "pay", "-e", "-q", *options).output
    copied = run(
        "produce",
        "copy",
        *options,
        "--subject",
        "pay-value",
        "--format",
        "json",
        given=printed.encode(),
    )
    assert (copied.status, copied.errors) == (0, "sent 11 records to copy\n")
    records = [
        [(each.value, each.headers) for each in threaded_broker.records(topic)]
        for topic in ("pay", "copy")
    ]
    assert records[0] == records[1] and len(records[0]) == 11
    assert (
        json.loads(printed.splitlines()[0])["value_schema_id"]
        != json.loads(printed.splitlines()[-2])["value_schema_id"]
    )


TEA = {"item": "tea", "note": None, "code": b"\xff", "at": 0}
VERSIONS: list[tuple[dict[str, Any], list[object]]] = [
    (PAYMENT, [{"by": ("A", TEA)}, {"by": [TEA, {**TEA, "note": ""}]}]),
    (
        NUMBERS,
        [
            {"by": ("long", 1), "all": {"a": ("float", 0.5), "b": ("double", 0.5)}},
            {"by": ("float", float("inf"))},
            {"by": ("double", 0.1)},
            {"by": ("bytes", b"text")},
            {"by": ("string", "text")},
            {"by": None},
            {"by": ("int", -1)},
        ],
    ),
]


def test_a_schema_of_another_subject_is_not_used(
    run: Run, registry: Registry, threaded_broker: ThreadedCluster
) -> None:
    line = {"value": LINES[0], "value_schema_id": registry.ids["orders-key"]}
    given = lines(line, {**line, "value_schema_id": 99}, {**line, "value_schema_id": "x"})
    options = ("--registry", registry.url, "--format", "json")
    ended = run("produce", "orders", *options, given=given)
    assert ended.status == 1 and "line 3: " in ended.errors and "'x'" in ended.errors
    prefix = b"\0" + registry.ids["orders-value"].to_bytes(4, "big")
    stored = [each.value or b"" for each in threaded_broker.records("orders")]
    assert [each[:5] for each in stored] == [prefix] * 2
