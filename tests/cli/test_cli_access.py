"""``aioprod acls`` and ``aioprod users``: ACLs of a real broker with an authorizer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from aioprod.admin import AclOperation, ResourceType, ScramMechanism
from aioprod.cli.acls import OPERATIONS, RESOURCES
from aioprod.cli.users import MECHANISMS
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_kafka import RealKafka
from tests.waiting import wait_until

Run = Callable[..., tuple[int, str, str]]
SECRET = "hunter2"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RealKafka]:
    """A broker that lets only its own listener's anonymous clients do everything."""
    with RealKafka(
        listeners=[Listener("SASL_PLAINTEXT", mechanisms=["SCRAM-SHA-256", "SCRAM-SHA-512"])],
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "the brokers' secret",
        },
    ) as running:
        yield running


def login(guarded: RealKafka, directory: Path, password: str) -> list[str]:
    """The arguments of alice."""
    file = directory / "alice.properties"
    file.write_text(
        f"bootstrap.servers={guarded.bootstrap_servers_of('SASL_PLAINTEXT')}\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username=alice\nsasl.password={password}\n"
    )
    return ["--config-file", str(file)]


@pytest.mark.kafka
def test_a_users_life(run: Run, guarded: RealKafka, tmp_path: Path) -> None:
    where = ["-b", guarded.bootstrap_servers]
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(f"{SECRET}\nanother line\n")
    second.write_text(f"{SECRET}-2\r\n")
    given = ["--password-file", str(first), *where]
    status, output, errors = run("users", "change", "alice", *given)
    assert (status, output) == (1, "") and "alice has no password for SCRAM-SHA-512" in errors
    assert run("users", "add", "alice", *given) == (0, "", "")
    wait_until(lambda: "alice" in run("users", "list", *where)[1])
    status, _, errors = run("users", "add", "alice", *given)
    assert status == 1 and errors.endswith("alice has a password for SCRAM-SHA-512; use change\n")
    short = ["--mechanism", "SCRAM-SHA-256", "--iterations", "4096"]
    assert run("users", "add", "alice", *short, *given) == (0, "", "")
    listed = [
        "USER   MECHANISM      ITERATIONS",
        "alice  SCRAM-SHA-256  4096",
        "alice  SCRAM-SHA-512  8192",
    ]
    wait_until(lambda: run("users", "list", *where)[1].splitlines() == listed)
    assert run("users", "remove", "--yes", "alice", *short[:2], *where) == (0, "", "")
    wait_until(lambda: "SCRAM-SHA-256" not in run("users", "list", *where)[1])
    status, output, errors = run("users", "list", "alice", "bob", "--json", *where)
    assert status == 1 and "RESOURCE_NOT_FOUND" in errors and "user bob" in errors
    assert json.loads(output) == [
        {"user": "alice", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]}
    ]

    assert run("users", "change", "alice", "--password-file", str(second), *where)[0] == 0
    wait_until(lambda: run("topics", "list", *login(guarded, tmp_path, f"{SECRET}-2"))[0] == 0)
    status, _, errors = run("topics", "list", *login(guarded, tmp_path, SECRET))
    assert status == 1 and "Authentication failed" in errors

    status, output, errors = run("users", "remove", "--yes", "alice", "bob", *where)
    assert status == 1 and SECRET not in output + errors
    assert "remove SCRAM_SHA_512 credentials of User:bob" in errors
    assert "RESOURCE_NOT_FOUND" in errors
    removed = login(guarded, tmp_path, f"{SECRET}-2")
    wait_until(lambda: "Authentication failed" in run("topics", "list", *removed)[2])


@pytest.mark.kafka
def test_an_acls_life(run: Run, guarded: RealKafka, tmp_path: Path) -> None:
    where = ["-b", guarded.bootstrap_servers]
    orders = ["--topic", "orders-", "--pattern", "prefixed", "--principal", "User:alice"]
    read_write = ["--operation", "read", "--operation", "write"]
    assert run("acls", "add", *orders, *read_write, *where) == (0, "", "")
    denied = ["--cluster", "--principal", "User:bob", "--operation", "alter"]
    assert run("acls", "add", *denied, "--permission", "deny", *where)[0] == 0
    cluster = "CLUSTER   kafka-cluster  LITERAL   User:bob    DENY        ALTER      *"
    listed = [
        "RESOURCE  NAME           PATTERN   PRINCIPAL   PERMISSION  OPERATION  HOST",
        "TOPIC     orders-        PREFIXED  User:alice  ALLOW       READ       *",
        "TOPIC     orders-        PREFIXED  User:alice  ALLOW       WRITE      *",
        cluster,
    ]
    wait_until(lambda: run("acls", "list", *where)[1].splitlines() == listed)
    matching = ["--topic", "orders-2026", "--pattern", "MATCH", "--operation", "Write"]
    assert json.loads(run("acls", "list", *matching, "--json", *where)[1]) == [
        {
            "resource_type": "TOPIC",
            "resource_name": "orders-",
            "principal": "User:alice",
            "operation": "WRITE",
            "permission": "ALLOW",
            "pattern_type": "PREFIXED",
            "host": "*",
        }
    ]
    password = tmp_path / "password"
    password.write_text(SECRET)
    assert run("users", "add", "alice", "--password-file", str(password), *where)[0] == 0
    alice = login(guarded, tmp_path, SECRET)
    wait_until(lambda: run("topics", "list", *alice)[0] == 0)
    status, _, errors = run("acls", "add", "--topic", "t", *orders[4:], *read_write, *alice)
    assert status == 1 and "CLUSTER_AUTHORIZATION_FAILED" in errors
    assert "create ACL ALLOW User:alice READ TOPIC t from *" in errors
    status, _, errors = run("acls", "list", "--principal", "User:bob", *alice)
    assert status == 1 and "describe_acls: ANY User:bob ANY ANY ANY (ANY) from ANY" in errors
    status, _, errors = run("acls", "remove", "--yes", "--principal", "User:bob", *alice)
    assert status == 1 and "delete_acls: ANY User:bob ANY ANY ANY (ANY) from ANY" in errors
    status, _, errors = run("users", "list", *alice)
    assert status == 1 and "describe_user_scram_credentials" in errors

    status, output, errors = run("acls", "remove", "--yes", "--topic", "orders-", *where)  # literal
    assert (status, output) == (1, "") and "the options select no ACL" in errors
    status, output, _ = run("acls", "remove", "--yes", *orders, *read_write, *where)
    assert status == 0 and len(output.splitlines()) == 3
    left = ["CLUSTER   kafka-cluster  LITERAL  User:bob   DENY        ALTER      *"]
    wait_until(lambda: run("acls", "list", *where)[1].splitlines()[1:] == left)
    assert run("acls", "remove", "--yes", "--all", *where)[0] == 0
    wait_until(lambda: run("acls", "list", *where) == (0, "", ""))
    assert run("users", "remove", "--yes", "alice", *where)[0] == 0


@pytest.mark.kafka
def test_a_tokens_life(run: Run, guarded: RealKafka, tmp_path: Path) -> None:
    where = ["-b", guarded.bootstrap_servers]
    status, _, errors = run("tokens", "create", *where)
    assert status == 1 and "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in errors
    password = tmp_path / "password"
    password.write_text(SECRET)
    assert run("users", "add", "alice", "--password-file", str(password), *where)[0] == 0
    alice = login(guarded, tmp_path, SECRET)
    wait_until(lambda: run("topics", "list", *alice)[0] == 0)
    status, printed, errors = run("tokens", "create", "--renewer", "User:bob", *alice)
    assert (status, errors) == (0, "")
    settings = dict(line.split("=", 1) for line in printed.splitlines())
    token, hmac = settings["sasl.username"], settings["sasl.password"]
    file = tmp_path / "token.properties"
    servers = guarded.bootstrap_servers_of("SASL_PLAINTEXT")
    file.write_text(f"bootstrap.servers={servers}\nsecurity.protocol=SASL_PLAINTEXT\n{printed}")
    by_token = ["--config-file", str(file)]
    wait_until(lambda: run("topics", "list", *by_token)[0] == 0)

    status, output, _ = run("tokens", "list", *alice)
    names, row = (line.split() for line in output.splitlines())
    assert names == [*("TOKEN", "OWNER", "REQUESTER", "RENEWERS"), *("ISSUED", "EXPIRES", "MAX")]
    assert row[:4] == [token, "User:alice", "User:alice", "User:bob"]
    assert hmac not in output and run("tokens", "list", "--owner", "User:eve", *alice)[1] == ""
    (listed,) = json.loads(run("tokens", "list", "--json", *alice)[1])
    assert listed["token_id"] == token and "hmac" not in listed
    status, later, _ = run("tokens", "renew", token, *alice)
    assert status == 0 and listed["expires"] <= later.strip() <= listed["max"]
    status, sooner, _ = run("tokens", "expire", "--yes", token, "--period-ms", "60000", *alice)
    assert status == 0 and sooner < later

    assert run("tokens", "expire", "--yes", token, *alice)[0] == 0
    wait_until(lambda: run("topics", "list", *by_token)[0] == 1)
    status, _, errors = run("tokens", "renew", token, *alice)
    assert status == 1 and errors.endswith(f"there is no token {token} that you may describe\n")
    made = json.loads(run("tokens", "create", "--json", "--max-lifetime-ms", "1", *alice)[1])
    assert made["max"] == made["expires"] and made["hmac"]
    assert run("users", "remove", "--yes", "alice", *where)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["acls", "add", "--topic", "t"], "set a resource (such as --topic NAME), --principal"),
        (["acls", "add", "--operation", "raed"], "unknown value of --operation: raed; did you mea"),
        (["acls", "add", "--pattern", "any"], "unknown value of --pattern: any"),
        (["acls", "remove"], "or --all"),
        (["acls", "list", "--principal", "alice"], "--principal alice: must be TYPE:NAME"),
        (["acls", "list", "--topic", ""], "must not be empty"),
        (["acls", "list", "--user", "bob"], "--user bob: must be TYPE:NAME, such as User:alice"),
        (["users", "add", "a", "--password-file", "absent"], "absent: No such file"),
        (["users", "add", "a", "--password-file", "{empty}"], "must not be empty"),
        (["users", "add", "a", "--password-file", "{binary}"], "not UTF-8"),
        (["users", "add", "a", "--password-file", "{long}"], "must not have more than 4096 bytes"),
        (["users", "add", "a", "--password", SECRET], "unknown option --password"),
        (["tokens", "create", "--renewer", "bob"], "renewers: 'bob' must be TYPE:NAME"),
        (["tokens", "create", "--max-lifetime-ms", "0"], "whole number of at least 1, not '0'"),
        (["tokens", "renew", "x", "--hmac", SECRET], "unknown option --hmac"),
        (
            ["users", "add", "a", "--password-file", "{good}", "--iterations", "100"],
            "iterations=100: must be from 4096",
        ),
    ],
)
def test_wrong_arguments(run: Run, tmp_path: Path, arguments: list[str], text: str) -> None:
    files = {"empty": b"\n", "binary": b"\xff" + SECRET.encode(), "good": SECRET.encode()}
    files["long"] = b"a" * 4097 + b"\r\n"
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    paths = {name: str(tmp_path / name) for name in files}
    status, output, errors = run(*(each.format(**paths) for each in arguments))
    assert status == 2 and text in errors and output == "" and "Traceback" not in errors
    assert SECRET not in errors and len(errors.splitlines()) == 1


class Terminal(TextIOWrapper):
    def isatty(self) -> bool:
        return True


class TestPasswords:
    """Without a file, the user is prompted for them, but only on a terminal."""

    def test_from_a_pipe_or_nothing(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(f"{SECRET}\n".encode())))
        status, _, errors = run("users", "add", "alice")
        assert status == 2 and "standard input is not a terminal: set --password-file" in errors
        status, _, errors = run("users", "add", "alice", "--password-file", "-")
        assert status == 0 and SECRET not in errors
        assert "alice" in run("users", "list")[1]

    def test_asked_for_twice(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal(BytesIO()))
        given = iter([SECRET, "other", SECRET, SECRET])
        monkeypatch.setattr("getpass.getpass", lambda prompt: next(given))
        assert "the passwords differ" in run("users", "add", "alice")[2]
        assert "alice" not in run("users", "list")[1]
        status, _, errors = run("users", "add", "alice")
        assert status == 0 and SECRET not in errors
        assert "alice" in run("users", "list")[1]

    def test_ctrl_c_at_the_prompt(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(prompt: str) -> str:
            raise KeyboardInterrupt

        monkeypatch.setattr(sys, "stdin", Terminal(BytesIO()))
        monkeypatch.setattr("getpass.getpass", interrupted)
        assert run("users", "change", "alice") == (130, "", "")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_longest_password(run: Run, tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"a" * 4096 + end)
    assert run("users", "add", "alice", "--password-file", str(file)) == (0, "", "")


def test_the_options_have_kafkas_names() -> None:
    def names(members: type[AclOperation] | type[ResourceType]) -> set[str]:
        unnamed = ("UNKNOWN", "ANY")
        return {each.name.lower().replace("_", "-") for each in members if each.name not in unnamed}

    assert set(OPERATIONS) == names(AclOperation)
    assert {*RESOURCES, "cluster"} == names(ResourceType)
    assert {name.replace("-", "_") for name in MECHANISMS} == {
        each.name for each in ScramMechanism if each
    }
