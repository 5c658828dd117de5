"""``aioprod dlq`` lists, shows, redrives and drops dead letters."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from aioprod import Producer, ProducerRecord
from aioprod.preparation import NotPrepared
from aioprod.schema_registry import AvroSerializer, SchemaRegistry
from aioprod.testing import ThreadedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.cli.conftest import Run

DEAD = "orders.dead"
ESCAPE = "\x1b[31m\r\n\u202e"


def letter(number: int, *, error: str = "Timeout", value: bytes = b"v") -> ProducerRecord:
    headers = [
        (f"own{ESCAPE}", b"h"),
        ("aioprod.original-topic", b"orders"),
        ("aioprod.original-offset", b"%d" % number),
        ("aioprod.error-class", error.encode()),
        ("aioprod.error-message", f"no{ESCAPE}stock".encode()),
    ]
    return ProducerRecord(DEAD, value, f"k{ESCAPE}{number}".encode(), 0, 1_000, headers)


@pytest.fixture(autouse=True)
def topics(threaded_broker: ThreadedCluster) -> None:
    for topic in ("orders", DEAD):
        threaded_broker.create_topic(topic, 1)


def fill(cluster: ThreadedCluster, *records: ProducerRecord) -> None:
    async def send() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            for record in records:
                await (await producer.send(*record))

    asyncio.run(send())


def printable(*texts: str) -> bool:
    return all(text.replace("\n", "").isprintable() for text in texts)


def test_list(run: Run, threaded_broker: ThreadedCluster) -> None:
    fill(threaded_broker, letter(5), letter(6, error="Refused"))
    ended = run("dlq", "list", DEAD)
    assert ended.status == 0 and printable(ended.output)
    _, first, second = ended.output.splitlines()
    assert first.split() == [
        *("0:0", "1970-01-01", "00:00:01Z", "aioprod", "orders-?:5", "-", "0"),
        r"k\x1b[31m\r\n\u202e5",
        *("Timeout:", r"no\x1b[31m\r\n\u202estock"),
    ]
    assert "Refused" in second
    ended = run("dlq", "list", DEAD, "--json", "--error", "refused")
    found = json.loads(ended.output)
    assert printable(ended.output)
    assert (found["offset"], found["original_offset"], found["error"]) == (1, 6, "Refused")
    assert found["message"] == f"no{ESCAPE}stock"
    assert found["headers"] == [[f"own{ESCAPE}", "h"]]
    assert run("dlq", "list", DEAD, "-n", "1").errors == "more than 1 dead letter: give --count\n"
    assert "0:0" not in run("dlq", "list", DEAD, "--since", "2026-01-31T08:00:00Z").output


def test_show(run: Run, threaded_broker: ThreadedCluster) -> None:
    fill(threaded_broker, letter(5, value=b"\xff\x00"))
    ended = run("dlq", "show", DEAD, "0:0")
    assert ended.status == 0 and printable(ended.output)
    lines = dict(line.split("  ", 1) for line in ended.output.splitlines() if "  " in line)
    found = {name.strip(): text.strip() for name, text in lines.items()}
    assert found["error"] == "Timeout" and found["value base64"] == "/wA="
    assert found[r"header own\x1b[31m\r\n\u202e"] == "h"
    assert json.loads(run("dlq", "show", DEAD, "0:0", "--json").output)["value_base64"] == "/wA="
    ended = run("dlq", "show", DEAD, "0:1")
    assert ended.errors == f"aioprod dlq show: {DEAD}-0 has no record at offset 1\n"
    assert run("dlq", "show", DEAD, "1:0").status == 1
    assert "must be PARTITION:OFFSET" in run("dlq", "show", DEAD, "1").errors


def test_show_by_the_registry(run: Run, threaded_broker: ThreadedCluster) -> None:
    schema = {"type": "record", "name": "O", "fields": [{"name": "n", "type": "int"}]}

    async def value_of(url: str) -> Any:
        async with SchemaRegistry(url) as client:
            serialize = AvroSerializer(client, schema)
            try:
                return serialize("orders", [], {"n": 3})
            except NotPrepared as needed:
                await needed.prepare()
                return serialize("orders", [], {"n": 3})

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(portal.call(EmbeddedSchemaRegistry)) as registry,
    ):
        value = asyncio.run(value_of(registry.url))
        fill(threaded_broker, letter(0, value=value), letter(1, value=b"text"))
        ended = run("dlq", "show", DEAD, "0:0", "--registry", registry.url)
        assert '{"n": 3}' in ended.output, ended
        ended = run("dlq", "show", DEAD, "0:1", "--registry", registry.url)
        assert ended.status == 0 and "the value can't be decoded" in ended.errors
        assert "text" in ended.output


def test_redrive_and_drop(run: Run, threaded_broker: ThreadedCluster) -> None:
    fill(threaded_broker, letter(5), letter(6, error=f"Refused{ESCAPE}"))
    ended = run("dlq", "redrive", DEAD, "--dry-run", "--new")
    assert printable(ended.output) and ended.status == 0
    assert "1        selected  orders  orders  Timeout" in ended.output
    assert threaded_broker.records("orders") == []
    ended = run("dlq", "redrive", DEAD, "--yes")
    assert ended.status == 1 and "is older than a week" in ended.errors
    ended = run("dlq", "redrive", DEAD, "--yes", "--new", "--error", "Timeout")
    assert ended == (0, "", "sent 1 record again\n")
    ended = run("dlq", "drop", DEAD, "--yes", "--key", f"k{ESCAPE}6")
    assert ended == (0, "", "dropped 1 record, deleted 2 offsets\n")
    assert threaded_broker.records(DEAD) == []
    ended = run("dlq", "redrive", DEAD, "--yes", "--to-topic", DEAD)
    assert ended.status == 2 and "is the dead-letter topic" in ended.errors
    ended = run("dlq", "list", "no-topic")
    assert (ended.status, ended.errors) == (
        2,
        "aioprod dlq list: topic 'no-topic' does not exist\n",
    )


def test_list_what_is_pending(run: Run, threaded_broker: ThreadedCluster) -> None:
    def places(*options: str) -> list[str]:
        ended = run("dlq", "list", DEAD, *options)
        assert ended.status == 0, ended
        return [line.split()[0] for line in ended.output.splitlines()[1:]]

    fill(threaded_broker, *(letter(number, error=f"E{number}") for number in range(4)))
    assert places("--pending") == places() == ["0:0", "0:1", "0:2", "0:3"]
    assert run("dlq", "redrive", DEAD, "--yes", "--new", "--error", "E1").status == 0
    assert run("dlq", "drop", DEAD, "--yes", "--error", "E2").status == 0
    assert places("--pending") == ["0:0", "0:3"]
    assert places("--pending", "--error", "E3") == ["0:3"]
    assert places("--pending", "--group", "other") == places() == ["0:0", "0:1", "0:2", "0:3"]
    fill(threaded_broker, letter(4, error="E1"))
    assert places("--pending") == ["0:0", "0:3", "0:4"]
    ended = run("dlq", "list", DEAD, "--group", "other")
    assert ended.status == 2 and "needs pending=True (--pending)" in ended.errors


def test_what_redrive_leaves_out(run: Run, threaded_broker: ThreadedCluster) -> None:
    often = letter(1)._replace(headers=[*letter(1).headers, ("aioprod.redrives", b"3")])
    fill(threaded_broker, often, ProducerRecord(DEAD, b"alone"))
    ended = run("dlq", "redrive", DEAD, "--yes", "--new")
    assert ended.errors.splitlines() == [
        "sent 0 records again",
        "left out 1 record sent again as often as --max-redrives allows",
        "left out 1 record without an original topic: give --to-topic",
    ]
