"""``aioprod broker``: its options do what they say, for clients in other processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from aioprod import Admin, BrokerError, Consumer, Producer, cli
from aioprod.admin import NewTopic

LIMIT_S = 30
PASSWORD = "pencil-7"


@contextmanager
def running(*options: str) -> Iterator[dict[str, str]]:
    """The command as a process of its own: the line of JSON that it prints. Ctrl-C has to end it in
    order.
    """
    command = [sys.executable, "-m", "aioprod", "broker", "--port", "0", "--json", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, process.communicate(timeout=LIMIT_S)
            yield json.loads(line)
            os.killpg(process.pid, signal.SIGINT)
            output, errors = process.communicate(timeout=LIMIT_S)
            assert (process.returncode, output, errors) == (0, "", "")
        finally:
            if process.poll() is None:
                process.kill()


async def test_nodes_and_topics() -> None:
    with running(
        "--nodes", "2", "--topic", "orders:4", "--topic", "clicks", "--partitions", "3"
    ) as reported:
        assert reported["bootstrap_servers"].count("127.0.0.1:") == 2
        assert reported["security_protocol"] == "PLAINTEXT"
        async with Producer(reported["bootstrap_servers"]) as producer:
            assert await producer.partitions_for("orders") == [0, 1, 2, 3]
            assert await producer.partitions_for("clicks") == [0, 1, 2]
            assert (await producer.send_and_wait("orders", b"tea")).offset == 0


async def test_imitating_a_service() -> None:
    """The resets are those of a real socket."""
    with running("--nodes", "2", "--imitate", "event-hubs", "--imitate", "slow-topics") as reported:
        servers = reported["bootstrap_servers"]
        assert servers.count("127.0.0.1:") == 1  # the load balancer
        async with Producer(servers) as producer:
            assert (await producer.send_and_wait("orders", b"tea")).offset == 0
            with pytest.raises(BrokerError, match="UNSUPPORTED_COMPRESSION_TYPE"):
                async with Producer(servers, compression_type="lz4") as compressing:
                    await compressing.send_and_wait("orders", b"tea" * 500)
        async with Consumer(
            "orders", group_id="g", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"tea"
            await consumer.commit()


async def test_tls_and_sasl(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "broker.pem")
    )
    (tmp_path / "users").write_text(f"alice:{PASSWORD}\n\n")
    with running(
        "--tls-certificate",
        str(tmp_path / "broker.pem"),
        "--users",
        str(tmp_path / "users"),
        "--mechanism",
        "SCRAM-SHA-256",
    ) as reported:
        assert reported["security_protocol"] == "SASL_SSL"
        async with Producer(
            reported["bootstrap_servers"],
            security_protocol="SASL_SSL",
            ssl_truststore_location=str(tmp_path / "ca.pem"),
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="alice",
            sasl_password=PASSWORD,
        ) as producer:
            assert (await producer.send_and_wait("t", b"x")).offset == 0


async def test_a_super_user_gives_rights(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"alice:{PASSWORD}\nroot:{PASSWORD}\n")
    with running("--users", str(tmp_path / "users"), "--super-user", "root") as reported:
        servers = reported["bootstrap_servers"]

        async def create(user: str, topic: str) -> None:
            async with Admin(
                servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-256",
                sasl_username=user,
                sasl_password=PASSWORD,
            ) as admin:
                await admin.create_topics(NewTopic(topic))

        with pytest.raises(BrokerError, match="not authorized for CREATE"):
            await create("alice", "t")
        await create("root", "t")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--topic", "a/b:3"], "a/b"),
        (["--topic", "a:x"], "must be a whole number"),
        (["--nodes", "101"], "nodes=101"),
        (["--tls-key", "key.pem"], "need --tls-certificate"),
        (["--tls-certificate", "nowhere.pem"], "the TLS files can't be used: No such file"),
        (["--mechanism", "PLAIN"], "--mechanism needs --users"),
        (["--users", "nowhere"], "can't read --users nowhere: No such file"),
        (["--users", "users"], "line 2 of --users users is not NAME:PASSWORD"),
        (["--users", "empty"], "--users empty has no users"),
        (["--users", "good", "--mechanism", "GSSAPI"], "must be among PLAIN"),
    ],
)
def test_what_can_not_be_had_is_one_line(
    options: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users").write_text(f"alice:secret\n{PASSWORD}\n")
    (tmp_path / "good").write_text(f"alice:{PASSWORD}\n")
    (tmp_path / "empty").write_text("\n")
    try:
        status = cli.main(["broker", "--port", "0", *options])
    except SystemExit as ended:
        status = int(str(ended.code))
    output, error = capsys.readouterr()
    assert (status, output) == (2, "")
    assert error.startswith("aioprod broker: ") and error.count("\n") == 1
    assert text in error
    assert PASSWORD not in error
