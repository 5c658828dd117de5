"""``aioprod groups``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from aioprod import Producer, TopicPartition
from aioprod.admin.groups import GROUP_STATES, GROUP_TYPES
from aioprod.cli.groups import STATES, TYPES
from aioprod.testing import ThreadedCluster

Run = Callable[..., tuple[int, str, str]]
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def filled(threaded_broker: ThreadedCluster) -> ThreadedCluster:
    """Ten records, a second apart, in each of two partitions."""

    async def fill() -> None:
        async with Producer(threaded_broker.bootstrap_servers) as producer:
            for number in range(20):
                await producer.send(
                    "orders",
                    b"x",
                    partition=number % 2,
                    timestamp_ms=1_700_000_000_000 + number // 2 * 1000,
                )

    threaded_broker.create_topic("orders", 2)
    asyncio.run(fill())
    return threaded_broker


def test_a_dry_run_changes_nothing(run: Run, filled: ThreadedCluster) -> None:
    status, output, errors = run(
        "groups", "reset-offsets", "mine", "--topic", "orders", "--to-latest", "--dry-run"
    )
    assert errors == "dry run: nothing was changed\n"
    assert (status, output.splitlines()) == (
        0,
        [
            "TOPIC   PARTITION  FROM  TO",
            "orders  0          -     10",
            "orders  1          -     10",
        ],
    )
    assert not filled.committed_offsets("mine")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "4"], 4),
        (["--to-offset", "99"], 10),
        (["--to-datetime", "2023-11-14T22:13:25+00:00"], 5),
        (["--to-datetime", "2030-01-01T00:00:00Z"], 10),
        (["--shift-by", "2"], 5),
        (["--shift-by", "-2"], 1),
        (["--shift-by", "-9"], 0),
    ],
)
def test_where_a_group_goes_on(
    run: Run, filled: ThreadedCluster, where: list[str], expected: int
) -> None:
    assert (
        run("groups", "reset-offsets", "mine", "--topic", "orders", "--to-offset", "3", "--yes")[0]
        == 0
    )
    status, output, errors = run("groups", "reset-offsets", "mine", *where, "--yes", "--json")
    assert (status, errors) == (0, "")
    assert json.loads(output) == [
        {"topic": "orders", "partition": number, "from": 3, "to": expected} for number in (0, 1)
    ]
    assert filled.committed_offsets("mine") == {FIRST: expected, SECOND: expected}


def test_single_partitions(run: Run, filled: ThreadedCluster) -> None:
    assert (
        run(
            "groups",
            "reset-offsets",
            "mine",
            "--topic",
            "orders:1",
            "--to-offset",
            "3",
            "--yes",
        )[0]
        == 0
    )
    assert filled.committed_offsets("mine") == {SECOND: 3}


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["mine", "--to-earliest"], 2, "group mine has no offsets: name the partitions by --topic"),
        (
            ["mine", "--topic", "orders", "--shift-by", "1"],
            2,
            "--shift-by: group mine has no offset of orders-0",
        ),
        (
            ["mine", "--topic", "orders:x", "--to-earliest"],
            2,
            "--topic orders:x: must be TOPIC or TOPIC:N,N",
        ),
        (
            ["mine", "--topic", "orders", "--to-datetime", "yesterday"],
            2,
            "must be a time such as 20",
        ),
        (["mine", "--topic", "orders"], 2, "--to-earliest"),
        (
            ["mine", "--topic", "missing", "--to-earliest"],
            1,
            "topic missing: UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            ["mine", "--topic", "orders:7", "--to-earliest"],
            1,
            "orders-7 (the topic has 2 partitions)",
        ),
    ],
)
def test_what_can_not_be_reset(
    run: Run, filled: ThreadedCluster, arguments: list[str], status: int, text: str
) -> None:
    ended = run("groups", "reset-offsets", *arguments, "--yes")
    assert ended[0] == status and text in ended[2] and ended[2].count("\n") == 1


def test_list_describe_and_delete(run: Run, filled: ThreadedCluster) -> None:
    assert run("groups", "list") == (0, "", "")
    run("groups", "reset-offsets", "mine", "--topic", "orders", "--to-offset", "4", "--yes")
    assert run("groups", "list")[1].splitlines()[1].split() == ["mine", "classic", "Empty"]
    assert (
        json.loads(run("groups", "list", "--state", "Empty", "--type", "classic", "--json")[1])[0][
            "group"
        ]
        == "mine"
    )
    assert json.loads(run("groups", "list", "--state", "stable", "--json")[1]) == []
    lines = run("groups", "describe", "mine")[1].splitlines()
    assert lines[0] == "mine  classic  Empty  0 members"
    assert [line.split() for line in lines[2:]] == [
        ["orders", str(number), "4", "10", "6", "-", "-"] for number in (0, 1)
    ]
    reported = json.loads(run("groups", "describe", "mine", "--json")[1])[0]
    assert reported["offsets"][0] == {
        "topic": "orders",
        "partition": 0,
        "committed": 4,
        "end": 10,
        "lag": 6,
        "member_id": None,
    }
    status, output, errors = run("groups", "describe", "mine", "missing")
    assert status == 1 and output.startswith("mine") and "group missing" in errors
    assert run("groups", "delete", "mine", "--yes") == (0, "", "")
    assert run("groups", "list") == (0, "", "")


def test_options_have_the_names_of_states_and_types(run: Run) -> None:
    assert (STATES, TYPES) == (GROUP_STATES, GROUP_TYPES)
    status, output, errors = run("groups", "list", "--type", "shared")
    assert (status, output) == (2, "")
    assert "value of --type: shared; did you mean share? (known: classic, consumer," in errors
    status, output, errors = run("groups", "list", "--state", "Stabel")
    assert (status, output) == (2, "")
    assert "value of --state: Stabel; did you mean Stable? (known: Stable, Empty," in errors


def test_a_group_whose_topic_is_gone_is_described(run: Run, filled: ThreadedCluster) -> None:
    run("groups", "reset-offsets", "mine", "--topic", "orders", "--to-offset", "4", "--yes")
    filled.create_topic("clicks", 1)
    run("groups", "reset-offsets", "mine", "--topic", "clicks", "--to-offset", "0", "--yes")
    run("topics", "delete", "clicks", "--yes")
    status, output, errors = run("groups", "describe", "mine")
    assert (status, errors) == (0, "")
    assert "orders" in output
