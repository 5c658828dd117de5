"""The command line and the examples connect to the cluster of their arguments, environment or
profile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aioprod import ConfigError, Producer, cli, connection_settings
from aioprod.testing import BrokerSecurity, EmbeddedCluster, ThreadedCluster

SECRET = "hunter2"
NOWHERE = "127.0.0.1:1"
LOGIN = f"""
security.protocol = SASL_PLAINTEXT
sasl.mechanism = SCRAM-SHA-512
sasl.username = alice
sasl.password = {SECRET}
"""

Topics = Callable[..., tuple[int, str, str]]
Write = Callable[[str], None]


@pytest.fixture
def write(config_home: Path) -> Write:
    def write(text: str) -> None:
        config_home.mkdir(parents=True, exist_ok=True)
        path = config_home / "profiles.properties"
        path.write_text(text)
        path.chmod(0o600)

    return write


@pytest.fixture
def guarded() -> Iterator[ThreadedCluster]:
    """A broker that requires a login."""
    with EmbeddedCluster.in_thread(security=BrokerSecurity(users={"alice": SECRET})) as running:
        running.create_topic("guarded")
        yield running


@pytest.fixture
def topics(capfd: pytest.CaptureFixture[str]) -> Topics:
    """Lists the topics of the cluster that the arguments name."""

    def call(*arguments: str) -> tuple[int, str, str]:
        limit = ("-X", "default.api.timeout.ms=3000")
        status = cli.main(["topics", "list", *limit, *arguments])
        return status, *capfd.readouterr()

    return call


def test_arguments_then_environment_then_profiles(
    topics: Topics,
    write: Write,
    guarded: ThreadedCluster,
    threaded_broker: ThreadedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threaded_broker.create_topic("open")
    servers = threaded_broker.bootstrap_servers
    write(
        f"[default]\nbootstrap.servers={servers}\n"
        f"[guarded]\nbootstrap.servers={guarded.bootstrap_servers}\n{LOGIN}\n"
        f"[moved]\nbootstrap.servers={NOWHERE}\n{LOGIN}\n"
    )
    assert topics() == (0, "open\n", "")
    assert topics("--profile", "guarded") == (0, "guarded\n", "")
    assert topics("--profile", "moved", "-b", guarded.bootstrap_servers) == (0, "guarded\n", "")
    monkeypatch.setenv("AIOPROD_PROFILE", "guarded")
    assert topics() == (0, "guarded\n", "")
    assert topics("--profile", "default") == (0, "open\n", "")
    # A password is not sent to other servers than those that it is for.
    assert topics("-b", servers) == (0, "open\n", "")
    assert topics("-X", f"bootstrap.servers={servers}") == (0, "open\n", "")
    assert topics("-X", "client.id=me") == (0, "guarded\n", "")
    monkeypatch.setenv("AIOPROD_PROFILE", "moved")
    monkeypatch.setenv("AIOPROD_BOOTSTRAP_SERVERS", guarded.bootstrap_servers)
    assert topics() == (0, "guarded\n", "")
    assert topics("--profile", "default") == (0, "open\n", "")
    monkeypatch.setenv("AIOPROD_PROFILE", "")
    monkeypatch.setenv("AIOPROD_BOOTSTRAP_SERVERS", servers)
    assert topics() == (0, "open\n", "")


def test_a_config_file_names_the_cluster_or_adds_to_a_profile(
    topics: Topics, write: Write, guarded: ThreadedCluster, tmp_path: Path
) -> None:
    write(f"[guarded]\nbootstrap.servers={NOWHERE}\n{LOGIN}\nsasl.username=bob\n")
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={guarded.bootstrap_servers}\nsasl.username=alice\n")
    assert topics("--profile", "guarded", "--config-file", str(file)) == (0, "guarded\n", "")


@pytest.mark.parametrize(
    ("text", "arguments", "error"),
    [
        ("[prod]\n", ["--profile", "prd"], "did you mean 'prod'?"),
        ("", ["--profile", "prod"], "(known: none)"),
        (f"sasl.password={SECRET}\n", [], "settings must follow a heading such as [production]"),
        ("[a]\n[a]\n", [], "profile 'a' occurs twice"),
        (f"[a b]\n{LOGIN}", [], "line 1 of the profiles"),
        (
            f"[default]\nlinger.ms={SECRET}\n",
            [],
            "a profile may only contain settings of all clients",
        ),
        (f"[default]\n{SECRET}\n", [], "it is not NAME=VALUE"),
        (f"[default]\nssl.keystore.password={SECRET}\n", [], "is not supported"),
        (f"[default]\n{LOGIN}\nrequest.timeout.ms={SECRET}\n", [], "request_timeout_ms"),
    ],
)
def test_an_invalid_profile(
    topics: Topics, write: Write, text: str, arguments: list[str], error: str
) -> None:
    write(text)
    status, output, errors = topics(*arguments)
    assert (status, output) == (2, "") and error in errors and len(errors.splitlines()) == 1
    if "timeout" not in text:
        assert SECRET not in errors


def test_no_profile_and_no_file(topics: Topics) -> None:
    status, _, errors = topics("--profile", "prod")
    assert status == 2 and "profile 'prod': there is no file" in errors


def test_a_file_with_passwords_that_others_can_read_is_warned_of(
    write: Write, config_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(f"[prod]\nbootstrap.servers=a:1\n{LOGIN}[open]\nbootstrap.servers=b:1\n")
    path = config_home / "profiles.properties"
    with caplog.at_level(logging.WARNING):
        assert connection_settings("prod")["sasl_password"] == SECRET
        assert not caplog.records
        path.chmod(0o640)
        connection_settings("open")
        assert not caplog.records
        connection_settings("prod")
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} contains passwords, and other users of this machine can read it: chmod 600 {path}"
    ]


def test_programs_use_them(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection_settings() == {"bootstrap_servers": "localhost:9092"}
    write("[prod]\nbootstrap.servers=a:1,b:2\nrequest.timeout.ms=5000\nclient.id=me\n")
    expected = {"bootstrap_servers": "a:1,b:2", "request_timeout_ms": 5000, "client_id": "me"}
    assert connection_settings("prod") == expected
    assert Producer(**connection_settings("prod"), linger_ms=7).config.request_timeout_ms == 5000
    monkeypatch.setenv("AIOPROD_BOOTSTRAP_SERVERS", "c:3")
    assert connection_settings() == {"bootstrap_servers": "c:3"}


def test_no_traceback_shows_a_password(write: Write) -> None:
    write(f"[default]\n{LOGIN}\nlinger.ms=5\n")
    with pytest.raises(ConfigError) as raised:
        connection_settings()
    frames = [each.frame.f_locals for each in raised.traceback][1:]
    assert SECRET not in repr(frames)
