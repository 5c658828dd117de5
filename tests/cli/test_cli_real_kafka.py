"""The commands with a real broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Callable

import pytest

from aioprod import Admin, BrokerError

Run = Callable[..., tuple[int, str, str]]
LIMIT_S = 60


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topics_life(run: Run, kafka: str, protocol: str) -> None:
    topic, group = (f"{prefix}-{uuid.uuid4().hex[:8]}" for prefix in ("orders", "mine"))
    where = ("-b", kafka)
    assert run(
        "topics", "create", topic, "--partitions", "3", "--set", "retention.ms=86400000", *where
    ) == (0, "", "")
    asyncio.run(has_leaders(kafka, topic, 3))
    assert topic in run("topics", "list", *where)[1].splitlines()
    assert "  retention.ms=86400000" in run("topics", "describe", topic, *where)[1].splitlines()

    given = "".join(
        json.dumps({"key": f"k{number}", "value": number, "headers": {"n": str(number)}}) + "\n"
        for number in range(100)
    )
    command = [sys.executable, "-m", "aioprod.cli", "produce", topic, "--format", "json", *where]
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
    reset = run("groups", "reset-offsets", group, "--to-earliest", "--execute", "--json", *where)
    assert reset[0] == 0 and {each["to"] for each in json.loads(reset[1])} == {0}
    assert group in run("groups", "list", "--type", protocol, *where)[1]
    options = ("--once", "--json", "--interval", "0.1", "--group", group, "--topic", topic)
    load = json.loads(run("top", *options, *where)[1])
    assert [(each["type"], each["lag"]) for each in load["groups"]] == [(protocol, 100)]
    assert [(each["topic"], each["partitions"]) for each in load["topics"]] == [(topic, 3)]
    assert run("groups", "delete", group, *where) == (0, "", "")
    assert run("topics", "delete-records", topic, "--all", *where)[0] == 0
    assert run("consume", topic, "--exit", *where)[1] == ""
    assert run("topics", "delete", topic, *where) == (0, "", "")


async def has_leaders(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until each broker that is asked knows the new topic."""
    async with Admin(bootstrap) as admin, asyncio.timeout(LIMIT_S):
        while True:
            try:
                described = await admin.describe_topics(topic)
            except BrokerError:
                continue
            if sum(each.leader is not None for each in described.partitions) == partitions:
                return
