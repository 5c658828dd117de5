"""The commands with a real broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from asyncio.subprocess import PIPE
from collections.abc import Callable

import pytest

from tests.consumer.share.share_groups import ShareTopic, take
from tests.testing.new_topics import wait_for_leaders

Run = Callable[..., tuple[int, str, str]]
LIMIT_S = 60


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topics_life(run: Run, kafka: str, protocol: str) -> None:
    topic, group = (f"{prefix}-{uuid.uuid4().hex[:8]}" for prefix in ("orders", "mine"))
    where = ("-b", kafka)
    assert run(
        "topics", "create", topic, "--partitions", "3", "--set", "retention.ms=86400000", *where
    ) == (0, "", "")
    asyncio.run(wait_for_leaders(kafka, {topic: 3}))
    assert topic in run("topics", "list", *where)[1].splitlines()
    assert "  retention.ms=86400000" in run("topics", "describe", topic, *where)[1].splitlines()

    given = "".join(
        json.dumps({"key": f"k{number}", "value": number, "headers": {"n": str(number)}}) + "\n"
        for number in range(100)
    )
    command = [sys.executable, "-m", "aioprod", "produce", topic, "--format", "json", *where]
    produced = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (produced.returncode, produced.stderr) == (0, f"sent 100 records to {topic}\n")

    everything = run("consume", topic, "--exit", "--format", r"%k=%v %h\n", *where)
    assert everything[0] == 0 and sorted(everything[1].splitlines()) == sorted(
        f"k{number}={number} n={number}" for number in range(100)
    )
    seen: list[str] = []
    for _ in range(2):
        status, output, _ = run(
            "consume",
            topic,
            "--group",
            group,
            "--count",
            "50",
            "--format",
            r"%k\n",
            "-X",
            f"group.protocol={protocol}",
            *where,
        )
        assert status == 0
        seen += output.splitlines()
    assert len(seen) == len(set(seen)) == 100

    described = json.loads(run("groups", "describe", group, "--json", *where)[1])[0]
    assert (described["type"], described["state"], described["members"]) == (protocol, "Empty", [])
    assert [each["lag"] for each in described["offsets"]] == [0, 0, 0]
    assert sum(each["committed"] for each in described["offsets"]) == 100
    reset = run("groups", "reset-offsets", group, "--to-earliest", "--yes", "--json", *where)
    assert reset[0] == 0 and {each["to"] for each in json.loads(reset[1])} == {0}
    assert group in run("groups", "list", "--type", protocol, *where)[1]
    options = ("--once", "--json", "--interval", "0.1", "--group", group, "--topic", topic)
    load = json.loads(run("top", *options, *where)[1])
    assert [(each["type"], each["lag"]) for each in load["groups"]] == [(protocol, 100)]
    assert [(each["topic"], each["partitions"]) for each in load["topics"]] == [(topic, 3)]
    assert run("groups", "delete", group, "--yes", *where) == (0, "", "")
    assert run("topics", "delete-records", topic, "--all", "--yes", *where)[0] == 0
    assert run("consume", topic, "--exit", *where)[1] == ""
    assert run("topics", "delete", topic, "--yes", *where) == (0, "", "")


def test_a_share_group(run: Run, kafka: str) -> None:
    shared = ShareTopic(kafka)
    where = ("-b", kafka)

    async def read_six(*command: str) -> tuple[int, str, str]:
        """Run the command while a member runs that has accepted 6 of 10 records."""
        await shared.create()
        await shared.write(range(10))
        async with shared.consumer(client_id="reader") as consumer:
            await take(consumer, 6, max_records=6)
            await consumer.commit()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "aioprod", *command, *where), stdout=PIPE, stderr=PIPE
            )
            output, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
        return process.returncode or 0, output.decode(), errors.decode()

    status, output, errors = asyncio.run(read_six("groups", "describe", shared.group))
    assert (status, errors) == (0, "")
    heading, names, row = output.splitlines()
    assert heading == f"{shared.group}  share  Stable  1 member  simple"
    assert names.split() == ["TOPIC", "PARTITION", "START", "LAG", "CLIENTS"]
    # The stored start may follow later than the records that are accepted.
    assert row.split() in [[shared.topic, "0", start, "4", "reader"] for start in ("0", "6")]

    assert shared.group in run("groups", "list", "--type", "share", *where)[1]
    status, output, _ = run(
        "groups", "reset-offsets", shared.group, "--shift-by", "-4", "--yes", "--json", *where
    )
    assert status == 0
    assert [(each["from"], each["to"]) for each in json.loads(output)] == [(6, 2)]
    status, output, errors = run("groups", "describe", shared.group, "missing", "--json", *where)
    assert status == 1
    assert "GROUP_ID_NOT_FOUND" in errors
    (described,) = json.loads(output)
    assert (described["type"], described["state"], described["members"]) == ("share", "Empty", [])
    (offsets,) = described["offsets"]
    assert (offsets["start"], offsets["lag"], offsets["clients"]) == (2, 8, [])
    assert run("groups", "delete", shared.group, "--yes", *where) == (0, "", "")
