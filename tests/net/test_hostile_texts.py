"""Texts of brokers in errors are short and printable, and do not contain the client's secrets."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioprod
from aioprod import Admin, Producer
from aioprod.admin import ConfigResource
from aioprod.cli.output import encode_json
from aioprod.error_codes import ErrorCode
from aioprod.errors import AuthenticationError, BrokerError, ConfigError, KafkaError
from aioprod.foreign_text import bounded, escaped, reason_of
from aioprod.logs import get_logger
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.sasl.gssapi import GssapiClient
from aioprod.protocol.sasl.mechanism import ClientMechanism
from aioprod.protocol.sasl.oauthbearer import OAuthBearerClient
from aioprod.protocol.sasl.plain import PlainClient, PlainServer
from aioprod.protocol.sasl.scram import ScramClient, ScramServer
from aioprod.secret_forms import secret_forms
from aioprod.testing import BrokerSecurity, EmbeddedCluster, change_answer
from tests.odd_answers import ESCAPES, SECRET, check_text

MECHANISMS: list[ClientMechanism] = [
    PlainClient("alice", SECRET),
    ScramClient("SCRAM-SHA-256", "alice", SECRET, "nonce"),
    OAuthBearerClient(SECRET, {}),
]


@given(st.text())
def test_any_text_can_be_shown(text: str) -> None:
    for shown in (escaped(text), reason_of(text), str(KafkaError(text)), str(ConfigError(text))):
        assert shown.isprintable()
    if text.isprintable():
        assert escaped(text) is text


@given(st.text())
def test_json_that_can_be_shown_has_the_same_values(text: str) -> None:
    import json

    encoded = encode_json({text: [text]})
    assert encoded.isprintable()
    assert json.loads(encoded) == {text: [text]}


@given(st.text(min_size=6), st.text(), st.text())
def test_no_reason_has_a_secret(secret: str, before: str, after: str) -> None:
    for form in secret_forms(secret):
        shown = reason_of(f"x{before}{form}{after}x", secret_forms(secret), 10_000)
        assert form not in shown or form in "x***" or form in f"x{before}***{after}x"


def test_a_short_secret_is_hidden_as_a_whole_word() -> None:
    assert reason_of("the host of s is 's'", secret_forms("s")) == "the host of *** is '***'"


def test_long_texts_are_cut_and_show_their_length() -> None:
    assert reason_of("x" * 1_000) == "x" * 500 + "... (1,000 characters)"
    assert bounded("x" * 3, 3) == "xxx"
    assert len(str(BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "\x9b" * 10**6))) < 5_000
    assert len(reason_of("\u202e" * 10**6)) < 1_100


def test_the_table_has_each_mechanism() -> None:
    kinds = {type(mechanism) for mechanism in MECHANISMS} | {GssapiClient}  # which has no password
    assert kinds == {
        kind for kind in ClientMechanism.__subclasses__() if kind.__module__.startswith("aioprod.")
    }


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_no_reason_has_the_secret_of_the_login(mechanism: ClientMechanism) -> None:
    for form in secret_forms(SECRET):
        said = mechanism.reason(f"no {form} {ESCAPES}")
        assert said.startswith("no *** \\x1b]0;") and said.isprintable()


def test_the_error_of_scram_is_a_reason_too() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", SECRET, "nonce")
    client.first_message()
    with pytest.raises(AuthenticationError, match=r"\(no \*\*\* \\x1b\)") as caught:
        client.answer(f"e=no {SECRET} \x1b".encode())
    check_text(caught.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_broker_that_repeats_the_password(
    mechanism: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(server: Any, message: bytes) -> bytes:
        raise AuthenticationError(f"{SECRET} is wrong {ESCAPES}" + "x" * 100_000)

    monkeypatch.setattr(PlainServer, "respond", refuse)
    monkeypatch.setattr(ScramServer, "respond", refuse)
    caplog.set_level(logging.DEBUG)
    async with EmbeddedCluster(security=BrokerSecurity(users={"alice": SECRET})) as broker:
        producer = Producer(
            broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username="alice",
            sasl_password=SECRET,
        )
        with pytest.raises(AuthenticationError, match=r"\*\*\* is wrong") as caught:
            await producer.start()
        await producer.close()
    check_text(caught.value)
    assert SECRET not in caplog.text and "\x1b" not in caplog.text


async def test_the_text_of_an_error_is_one_printable_line() -> None:
    async with EmbeddedCluster() as broker, Admin(broker.bootstrap_servers) as admin:
        results = await admin.describe_topics([f"no{ESCAPES}"])
    (error,) = results.errors.values()
    check_text(error)


def test_lines_of_the_log_are_printable(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("aioprod.test_hostile_texts")
    assert log is get_logger("aioprod.test_hostile_texts") and len(log.filters) == 1
    log.warning("%s %d %s %s", f"t{ESCAPES}", 5, ValueError(ESCAPES), KafkaError(ESCAPES))
    log.warning("%(name)s", {"name": 5})
    log.warning(f"unclosed {ESCAPES}")

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    log.warning("%s", Mute())
    line, _, unformatted, mute = caplog.messages
    assert mute == "<Mute, whose str() raises RuntimeError>"
    assert unformatted.isprintable()
    assert line.isprintable() and line.startswith("t\\x1b]0;owned\\x07")
    assert caplog.records[0].msg == "%s %d %s %s", "tools group lines by it"


def test_all_modules_have_such_a_logger() -> None:
    folder = Path(aioprod.__file__).parent
    found = [path for path in folder.rglob("*.py") if "getLogger(__name__)" in path.read_text()]
    # The template is a program of its own.
    assert [path.name for path in found if "template" not in path.parts] == []


async def test_names_of_a_broker_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster() as broker, Producer(broker.bootstrap_servers) as producer:
        await producer.send(f"t{ESCAPES}", b"x")
        await producer.flush()
    assert caplog.messages and all(line.isprintable() for line in caplog.messages)


async def test_a_password_among_settings_that_a_broker_refuses() -> None:
    def repeat(response: Any) -> None:
        for each in response.responses:
            each.error_code = ErrorCode.INVALID_CONFIG
            each.error_message = f"Invalid value {SECRET} for ssl.keystore.password {ESCAPES}"

    async with EmbeddedCluster() as broker, Admin(broker.bootstrap_servers) as admin:
        broker.on_every(ApiKey.INCREMENTAL_ALTER_CONFIGS, change_answer(repeat))
        broker_1 = ConfigResource.broker(1)
        changes = {broker_1: {"listener.name.x.ssl.keystore.password": SECRET}}
        results = await admin.incremental_alter_configs(changes)
    check_text(results.errors[broker_1])
    assert "Invalid value *** for" in str(results.errors[broker_1])
