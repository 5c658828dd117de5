"""Secrets of a wrong type, form or encoding are refused, and do not appear anywhere."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import pytest

import aioprod
from aioprod import Admin, AuthenticationError, ConfigError, Consumer, Producer, ShareConsumer
from aioprod.cluster.client import ClusterClient
from aioprod.config.admin import AdminConfig
from aioprod.config.client import ClientConfig
from aioprod.config.consumer import ConsumerConfig
from aioprod.config.producer import ProducerConfig
from aioprod.config.redaction import is_secret
from aioprod.config.security import SecurityConfig
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.errors import KafkaError
from aioprod.net.handshake import connect
from aioprod.oauth_token import OAuthToken
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.public_names import PUBLIC_NAMES
from tests.testing import leaks

SECRET = "hunter2-hunter2"
NUMBER = 48_151_623_421
SHORT = ("hunter2", str(NUMBER))  # they must not appear truncated, either
KEY = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"


class Shown:
    """An object whose repr is its value."""

    def __repr__(self) -> str:
        return SECRET


WRONG: dict[str, Any] = {
    "right": SECRET,
    "not ASCII": SECRET + "ü€",
    "a byte that is not UTF-8": SECRET + "\udcfc",
    "half a pair": "\ud83d" + SECRET,
    "NUL": SECRET + "\0",
    "lines": f"{SECRET}\n{SECRET}",
    "long": SECRET * 200,
    "a path": f"os.{SECRET}",
    "a path of names": f"{SHORT[0]}.token.of.mine",
    "a relative path": f".{SHORT[0]}",
    "PEM": KEY,
    "bytes": SECRET.encode(),
    "bytearray": bytearray(SECRET.encode()),
    "number": NUMBER,
    "fraction": NUMBER / 2**10 * 2**10,
    "list": [SECRET],
    "tuple": (SECRET, NUMBER),
    "mapping": {SECRET: SECRET},
    "object": Shown(),
    "token": OAuthToken(SECRET),
    "function": lambda: SECRET,
}
PASSWORD = {"security_protocol": "SASL_SSL", "sasl_username": "alice"}
# Settings that have a secret, or may have one by mistake, with the settings that they require.
USED_WITH: dict[str, list[dict[str, Any]]] = {
    "sasl_password": [
        {**PASSWORD, "sasl_mechanism": "PLAIN"},
        {**PASSWORD, "sasl_mechanism": "SCRAM-SHA-256"},
        {**PASSWORD, "sasl_mechanism": "SCRAM-SHA-512"},
        {},
    ],
    "sasl_jaas_config": [{"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, {}],
    "ssl_key_password": [{"security_protocol": "SSL"}, {}],
    "ssl_context": [{"security_protocol": "SSL"}, {}],
    "ssl_keystore_location": [{"security_protocol": "SSL"}],
    "ssl_truststore_location": [{"security_protocol": "SSL"}],
    "sasl_oauth_token_provider": [
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
        {},
    ],
    "sasl_oauthbearer_client_credentials_client_secret": [
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://login.example.com/token",
            "sasl_oauthbearer_client_credentials_client_id": "me",
        },
        {},
    ],
    "sasl_oauthbearer_assertion_private_key_passphrase": [
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://login.example.com/token",
            "sasl_oauthbearer_assertion_private_key_file": "key.pem",
        },
        {},
    ],
}
PATHS = ("ssl_keystore_location", "ssl_truststore_location")
CONFIGS = (ClientConfig, ProducerConfig, ConsumerConfig, ShareConsumerConfig, AdminConfig)
CLIENTS = (Producer, Consumer, ShareConsumer, Admin)
#: What these can't do without.
NEEDED: dict[object, dict[str, str]] = {
    ShareConsumerConfig: {"group_id": "g"},
    ShareConsumer: {"group_id": "g"},
}
Make = Callable[[Mapping[str, Any]], object]


def by_arguments(kind: Callable[..., object]) -> Make:
    return lambda given: kind(**NEEDED.get(kind, {}), **given)


def from_config(client: type[Producer | Consumer | ShareConsumer | Admin], sign: str) -> Make:
    def make(given: Mapping[str, Any]) -> object:
        settings = {**NEEDED.get(client, {}), **given}
        return client.from_config({name.replace("_", sign): settings[name] for name in settings})

    return make


def ways() -> dict[str, Make]:
    found = {kind.__name__: by_arguments(kind) for kind in (*CONFIGS, *CLIENTS)}
    found["ClusterClient"] = by_arguments(partial(ClusterClient, "localhost:1"))
    for client in CLIENTS:
        for sign in "._":
            found[f"{client.__name__}.from_config {sign}"] = from_config(client, sign)
    return found


def assert_hidden(text: str) -> None:
    assert not any(secret in text for secret in SHORT)


def below(kind: type[object]) -> Iterator[type[object]]:
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


def test_every_configuration_and_client_is_in_the_table() -> None:
    library = {kind for kind in below(SecurityConfig) if kind.__module__.startswith("aioprod.")}
    assert {kind.__name__ for kind in library - {SecurityConfig}} == {k.__name__ for k in CONFIGS}
    public = [getattr(aioprod, name) for name in PUBLIC_NAMES]
    assert {each for each in public if hasattr(each, "from_config")} == set(CLIENTS)


def test_every_setting_that_is_hidden_from_a_repr_is_in_the_table() -> None:
    for kind in CONFIGS:
        assert {each.name for each in fields(kind) if not each.repr} == USED_WITH.keys() - {*PATHS}
        for each in fields(kind):
            is_text = "str" in str(each.type) and "Path" not in str(each.type)
            assert is_secret(each.name) == (is_text and not each.repr), each.name


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize("setting", USED_WITH)
def test_a_wrong_secret_is_refused_and_shown_nowhere(
    everything_logged: io.StringIO, setting: str, way: str
) -> None:
    make = ways()[way]
    refused = 0
    for name, value in WRONG.items():
        if setting in PATHS and name != "PEM" and isinstance(value, str):
            continue  # paths are shown
        for others in USED_WITH[setting]:
            # An error of another setting must not show it, either.
            for fault in ({}, {"request_timeout_ms": -1}, {"no_such_setting": 1}):
                try:
                    made = make({**others, setting: value, **fault})
                except ConfigError as error:
                    refused += 1
                    assert_hidden(leaks.whole_text(error, [__file__]))
                except TypeError as error:  # Python's, for an unknown argument
                    assert "no_such_setting" in str(error) and "no_such_setting" in fault
                    assert_hidden(leaks.whole_text(error, [__file__]))
                else:
                    assert_hidden(repr(made) + repr(getattr(made, "config", "")))
    assert refused > len(WRONG)
    assert_hidden(everything_logged.getvalue())


@pytest.fixture
async def refusing() -> AsyncIterator[EmbeddedCluster]:
    """A broker that knows another password, and no token."""
    security = BrokerSecurity(users={"alice": "other"}, token_validator=lambda token, _: None)
    async with EmbeddedCluster(security=security) as running:
        yield running


async def refusal(broker: EmbeddedCluster, **settings: Any) -> AuthenticationError:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with pytest.raises(KafkaError) as raised:
        given = {"security_protocol": "SASL_PLAINTEXT", "request_timeout_ms": 3_000, **settings}
        await connect(host, int(port), ClientConfig(**given))
    assert isinstance(raised.value, AuthenticationError)
    return raised.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password_of_any_text_that_the_settings_take_can_be_sent(
    refusing: EmbeddedCluster, everything_logged: io.StringIO, mechanism: str
) -> None:
    sent = 0
    for value in WRONG.values():
        settings = {"sasl_mechanism": mechanism, "sasl_username": "alice", "sasl_password": value}
        try:
            ClientConfig(security_protocol="SASL_SSL", **settings)
        except ConfigError:
            continue
        assert_hidden(leaks.whole_text(await refusal(refusing, **settings), [__file__]))
        sent += 1
    assert sent >= 4
    assert_hidden(everything_logged.getvalue())


@pytest.mark.parametrize("name", [*WRONG, "nothing"])
async def test_whatever_a_token_provider_gives_is_refused_and_shown_nowhere(
    refusing: EmbeddedCluster, everything_logged: io.StringIO, name: str
) -> None:
    value: Any = WRONG.get(name)

    def asynchronous(answer: Any) -> Callable[[], Any]:
        async def provide() -> Any:
            return answer

        return provide

    answers = [
        value,
        OAuthToken(value),
        OAuthToken("good", value),
        OAuthToken("good", {"cluster": value}),
        OAuthToken(SECRET, {"cluster": value}),
    ]
    if name not in ("bytearray", "list", "mapping", "token"):  # these have no hash
        answers.append(OAuthToken("good", {value: SECRET}))
    for answer in answers:
        for provider in (asynchronous(answer), lambda answer=answer: answer):
            settings = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider}
            error = await refusal(refusing, **settings)
            assert_hidden(leaks.whole_text(error, [__file__]))
    assert_hidden(everything_logged.getvalue())
