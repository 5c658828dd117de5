"""Secrets on the command line: warned of once, taken from a file in silence, never repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from aioprod.config.admin import AdminConfig
from aioprod.config.consumer import ConsumerConfig
from aioprod.config.producer import ProducerConfig
from aioprod.config.redaction import is_secret
from aioprod.config.unsupported import PRODUCER_UNSUPPORTED
from aioprod.testing import BrokerSecurity, EmbeddedCluster, ThreadedCluster

SECRET = "hunter2"
Run = Callable[..., tuple[int, str, str]]
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": SECRET,
}
WARNING = "-X sasl.password: all users of this machine can see it"
COMMANDS = [
    ["topics", "list"],
    ["groups", "list"],
    ["cluster"],
    ["consume", "t", "--exit"],
]


@pytest.fixture
def guarded() -> Iterator[ThreadedCluster]:
    """A broker that requires a login."""
    with EmbeddedCluster.in_thread(security=BrokerSecurity(users={"alice": SECRET})) as running:
        running.create_topic("t")
        yield running


def given(settings: dict[str, str]) -> list[str]:
    return [text for name, value in settings.items() for text in ("-X", f"{name}={value}")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_secret_is_warned_of_once_and_not_if_a_file_has_it(
    run: Run, guarded: ThreadedCluster, tmp_path: Path, command: list[str]
) -> None:
    where = ["-b", guarded.bootstrap_servers]
    status, _, errors = run(*command, *where, *given(LOGIN))
    assert status == 0 and errors.count(WARNING) == 1 and "--config-file" in errors
    assert SECRET not in errors
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in LOGIN.items()))
    status, _, errors = run(*command, *where, "--config-file", str(file))
    assert status == 0 and "process list" not in errors
    status, _, errors = run(*command, *where, "--config-file", str(file), "-X", "client.id=me")
    assert status == 0 and "process list" not in errors


@pytest.mark.parametrize(
    "value",
    [SECRET, f"{SECRET}ü", f"{SECRET}\udcfc", f"{SECRET}\0", f" {SECRET}", "", f"{SECRET}\n"],
)
@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "sasl_oauth_token_provider",
        "sasl.jaas.config",
        "ssl.keystore.key",
        "ssl.context",
    ],
)
def test_a_secret_that_is_wrong_is_not_repeated(
    run: Run, tmp_path: Path, name: str, value: str
) -> None:
    protocol = "SSL" if name.startswith("ssl") else "SASL_SSL"
    mechanism = "OAUTHBEARER" if "oauth" in name else "PLAIN"
    settings = {"security.protocol": protocol, "bootstrap.servers": "127.0.0.1:1"}
    if protocol == "SASL_SSL":
        settings |= {"sasl.mechanism": mechanism}
        if mechanism == "PLAIN":
            settings |= {"sasl.username": "alice"}
    settings |= {name: value, "request.timeout.ms": "300"}
    status, output, errors = run("topics", "list", *given(settings))
    assert status in (1, 2) and SECRET not in output + errors and "Traceback" not in errors
    file = tmp_path / "client.properties"
    file.write_bytes(
        "\n".join(f"{name}={text}" for name, text in settings.items()).encode(
            errors="surrogateescape"
        )
    )
    status, output, errors = run("topics", "list", "--config-file", str(file))
    assert status in (1, 2) and SECRET not in output + errors and "Traceback" not in errors


def test_every_setting_with_a_secret_is_known() -> None:
    kinds = (ProducerConfig, ConsumerConfig, AdminConfig)
    ours = {each.name for kind in kinds for each in fields(kind) if is_secret(each.name)}
    assert ours == {
        "sasl_jaas_config",
        "sasl_oauthbearer_assertion_private_key_passphrase",
        "sasl_oauthbearer_client_credentials_client_secret",
        "sasl_password",
        "ssl_key_password",
    }
    assert {name for name in PRODUCER_UNSUPPORTED if is_secret(name)} == {
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
