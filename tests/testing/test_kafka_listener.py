"""Listeners are checked, and become Kafka's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioprod.testing.cache import SetupError
from aioprod.testing.kafka_listener import Listener, properties_text
from aioprod.testing.real_kafka import RealKafka


def test_passwords_and_keys_show_in_no_repr_and_no_error() -> None:
    listener = Listener(
        "SASL_SSL",
        certificate_chain="chain",
        private_key="s3cret key",
        mechanisms=["PLAIN"],
        plain_users={"bob": "s3cret"},
        settings={"x": "s3cret"},
    )
    assert "s3cret" not in repr(listener)
    with pytest.raises(ValueError, match="SCRAM user 'alice'") as raised:
        RealKafka(listeners=[listener], scram_users={"alice": "s3cret,"})
    assert "s3cret" not in str(raised.value)


@pytest.mark.kafka
def test_a_broker_that_cannot_start_does_not_show_its_passwords() -> None:
    listener = Listener(
        "SASL_PLAINTEXT",
        mechanisms=["PLAIN"],
        plain_users={"bob": "s3cret"},
        settings={"ssl.client.auth": "no such value"},
    )
    with pytest.raises(SetupError, match="no such value") as raised:
        RealKafka(listeners=[listener], scram_users={"alice": "s3cret"}).start()
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("listener", "message"),
    [
        ({"security_protocol": "TLS"}, "security_protocol must be one of"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "needs at least one mechanism"),
        ({"security_protocol": "SASL_PLAINTEXT", "mechanisms": ["NTLM"]}, "not NTLM"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "mechanisms": ["GSSAPI"]},
            "needs kerberos_principal and kerberos_keytab",
        ),
        ({"security_protocol": "PLAINTEXT", "mechanisms": ["PLAIN"]}, "has no mechanisms"),
        ({"security_protocol": "SSL"}, "needs certificate_chain and private_key"),
    ],
)
def test_a_listener_that_cannot_work_is_refused_at_once(
    listener: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Listener(**listener)  # type: ignore[arg-type]


def test_two_listeners_of_one_name_and_unknown_versions_are_refused() -> None:
    for taken in ("PLAINTEXT", "plaintext", "CONTROLLER"):
        with pytest.raises(ValueError, match="needs a different name"):
            RealKafka(listeners=[Listener(name=taken)])
    with pytest.raises(ValueError, match=r"version='0.8.2': must be one of 4\.4\.0"):
        RealKafka(version="0.8.2")


def test_a_listeners_settings_carry_its_name_and_win_over_the_made_ones(tmp_path: Path) -> None:
    listener = Listener(
        "SSL",
        name="MUTUAL",
        certificate_chain="chain",
        private_key="key",
        trusted_certificates="trusted",
        settings={"ssl.client.auth": "requested"},
    )
    assert listener.server_properties(tmp_path) == {
        "listener.name.mutual.ssl.keystore.type": "PEM",
        "listener.name.mutual.ssl.keystore.location": str(tmp_path / "MUTUAL-keys.pem"),
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(tmp_path / "MUTUAL-trusted.pem"),
        "listener.name.mutual.ssl.client.auth": "requested",
    }
    assert (tmp_path / "MUTUAL-keys.pem").read_text() == "key\nchain\n"
    assert (tmp_path / "MUTUAL-trusted.pem").read_text() == "trusted"


def test_a_properties_file_keeps_every_character() -> None:
    assert properties_text({"a": ' \\"é€😀\n'}) == 'a=\\ \\\\"\\u00e9\\u20ac\\ud83d\\ude00\\u000a\n'
