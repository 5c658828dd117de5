"""``aioprod topics`` and ``aioprod cluster``: their changes and their output are correct."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from aioprod import cli
from aioprod.testing import ThreadedCluster

Run = Callable[..., tuple[int, str, str]]


def test_create_list_and_delete(run: Run, threaded_broker: ThreadedCluster) -> None:
    assert run(
        "topics",
        "create",
        "orders",
        "clicks",
        "--partitions",
        "3",
        "--replication-factor",
        "1",
        "--set",
        "retention.ms=1000",
    ) == (0, "", "")
    assert {name: len(topic.partitions) for name, topic in threaded_broker.topics.items()} == {
        "orders": 3,
        "clicks": 3,
    }
    assert threaded_broker.topics["orders"].configs == {"retention.ms": "1000"}
    assert run("topics", "list") == (0, "clicks\norders\n", "")
    listed = json.loads(run("topics", "list", "--json")[1])
    assert [(each["name"], each["internal"]) for each in listed] == [
        ("clicks", False),
        ("orders", False),
    ]
    assert run("topics", "delete", "--yes", "orders", "clicks") == (0, "", "")
    assert run("topics", "list") == (0, "", "")


def test_what_fails_is_named_and_the_rest_is_done(
    run: Run, threaded_broker: ThreadedCluster
) -> None:
    threaded_broker.create_topic("orders", 1)
    status, output, errors = run("topics", "create", "orders", "clicks")
    assert (status, output) == (1, "")
    assert (
        errors.startswith("aioprod topics create: topic orders")
        and "TOPIC_ALREADY_EXISTS" in errors
        and errors.count("\n") == 1
    )
    assert sorted(threaded_broker.topics) == ["clicks", "orders"]
    status, _, errors = run("topics", "delete", "--yes", "missing", "clicks")
    assert status == 1 and "topic missing: UNKNOWN_TOPIC_OR_PARTITION" in errors
    assert sorted(threaded_broker.topics) == ["orders"]


def test_what_is_so_already_may_be_fine(run: Run) -> None:
    for _ in range(2):
        assert run("topics", "create", "orders", "--if-not-exists") == (0, "", "")
    for _ in range(2):
        assert run("topics", "delete", "--yes", "orders", "--if-exists") == (0, "", "")
    assert run("topics", "create", "a/b", "--if-not-exists")[0] == 1


def test_to_validate_changes_nothing(run: Run, threaded_broker: ThreadedCluster) -> None:
    assert run("topics", "create", "orders", "--dry-run") == (
        0,
        "",
        "dry run: nothing was changed\n",
    )
    assert not threaded_broker.topics
    threaded_broker.create_topic("orders", 1)
    assert run(
        "topics",
        "alter",
        "orders",
        "--partitions",
        "3",
        "--set",
        "retention.ms=1",
        "--dry-run",
    ) == (
        0,
        "SETTING       FROM       TO\npartitions    1          3\nretention.ms  604800000  1\n",
        "dry run: nothing was changed\n",
    )
    assert (
        len(threaded_broker.topics["orders"].partitions) == 1
        and not threaded_broker.topics["orders"].configs
    )


def test_describe(run: Run, threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("orders", 2, {"retention.ms": "1000"})
    threaded_broker.create_topic("clicks", 1)
    lines = run("topics", "describe", "orders")[1].splitlines()
    assert lines[0].startswith("orders  2 partitions  id ")
    assert lines[1:] == [
        "  retention.ms=1000",
        "PARTITION  LEADER  REPLICAS  IN SYNC  OFFLINE",
        "0          1       1         1        -",
        "1          1       1         1        -",
    ]
    described = json.loads(run("topics", "describe", "--json")[1])
    assert {each["name"]: len(each["partitions"]) for each in described} == {
        "orders": 2,
        "clicks": 1,
    }
    assert described[1]["settings"] == {"retention.ms": "1000"}
    everything = json.loads(run("topics", "describe", "clicks", "--json", "--all-settings")[1])
    assert everything[0]["settings"]["max.message.bytes"] == "1048588"
    status, output, errors = run("topics", "describe", "clicks", "missing")
    assert status == 1 and output.startswith("clicks") and "topic missing" in errors


def test_alter(run: Run, threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("orders", 1, {"retention.ms": "1000"})
    assert run(
        "topics",
        "alter",
        "orders",
        "--partitions",
        "4",
        "--set",
        "max.message.bytes=2000",
        "--unset",
        "retention.ms",
        "--yes",
    ) == (0, "", "")
    assert len(threaded_broker.topics["orders"].partitions) == 4
    assert threaded_broker.topics["orders"].configs == {"max.message.bytes": "2000"}
    status, _, errors = run("topics", "alter", "orders", "--partitions", "2", "--yes")
    assert status == 1 and "INVALID_PARTITIONS" in errors
    assert run("topics", "alter", "orders") == (
        2,
        "",
        "aioprod topics alter: nothing to alter: give --partitions, --set or --unset\n",
    )


def test_delete_records(run: Run, threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("orders", 2)
    run("produce", "orders", "-p", "0", given=b"a\nb\nc\n")
    status, output, _ = run(
        "topics", "delete-records", "orders", "--yes", "--before", "2", "--partition", "0"
    )
    assert (status, output.splitlines()) == (
        0,
        ["TOPIC   PARTITION  BEGINS AT", "orders  0          2"],
    )
    assert [record.value for record in threaded_broker.records("orders", 0)] == [b"c"]
    assert run("topics", "delete-records", "orders", "--all", "--yes")[0] == 0
    assert not threaded_broker.records("orders", 0)
    assert run("topics", "delete-records", "orders")[0] == 2


def test_the_cluster(run: Run) -> None:
    lines = run("cluster")[1].splitlines()
    assert (
        lines[0].startswith("cluster ")
        and lines[2].split()[0] == "1"
        and lines[2].endswith("controller")
    )
    reported = json.loads(run("cluster", "--json")[1])
    assert reported["controller"] == 1 and reported["brokers"][0]["host"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["topics", "lst"], "unknown command lst; did you mean list?"),
        (["topics", "list", "--jsn"], "unknown option --jsn; did you mean --json?"),
        (["topics", "create", "a", "--set", "nothing"], "must be NAME=VALUE"),
        (["topics", "list", "-X", "client.idd=x"], "'client.idd': did you mean 'client.id'?"),
        (
            ["topics", "list", "-X", "request.timeout.ms=soon"],
            "request_timeout_ms='soon': must be a whole number",
        ),
        (["topics", "list", "-X", "linger.ms=5"], "'linger.ms'"),
        (["topics", "list", "-b", "nowhere:port"], "must be host:port"),
        (
            ["topics", "list", "--config-file", "nowhere"],
            "can't read --config-file nowhere: No such file",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(run: Run, arguments: list[str], text: str) -> None:
    status, output, errors = run(*arguments)
    assert (status, output) == (2, "")
    assert text in errors and errors.startswith("aioprod ") and errors.count("\n") == 1


def test_an_address_without_a_server_is_one_line_and_status_1(
    run: Run, unused_tcp_port: int
) -> None:
    status, output, errors = run("topics", "list", "-b", f"127.0.0.1:{unused_tcp_port}")
    assert (status, output) == (1, "")
    assert errors == (
        f"aioprod topics list: no broker responds: 127.0.0.1:{unused_tcp_port}: "
        "Connection refused\n"
    )


def test_without_an_action_the_error_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["topics"])
    assert "{list,create,describe,alter,delete,delete-records}" in capsys.readouterr().err
