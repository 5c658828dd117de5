"""Logins in Java's own way: what is read, and that a wrong one says what to write without telling
the password.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import Admin, Consumer, Producer
from aioprod.config.client import ClientConfig
from aioprod.config.jaas import KerberosLogin, Login, parse_jaas
from aioprod.errors import ConfigError
from aioprod.testing import BrokerSecurity, EmbeddedCluster

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.mark.parametrize(
    "text",
    [
        f'{PLAIN} required username="alice" password="s3cret";',
        f"  {PLAIN}  REQUIRED\n  username='alice'\n  password = 's3cret' ;  ",
        f"{PLAIN} required username=alice password=s3cret;",
        (
            f'// who\n{PLAIN} required /* the\nname */ username="alice" password="s3\\143ret" '
            'serviceName="x";'
        ),
        (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" '
            'password="s3cret" tokenauth="false";'
        ),
        f'kafkashaded.{PLAIN} required username="alice" password="s3cret";',
    ],
)
def test_a_login_is_read(text: str) -> None:
    assert parse_jaas(text) == Login("alice", "s3cret")


@pytest.mark.parametrize(
    ("options", "login"),
    [
        ("useTicketCache=true", KerberosLogin()),
        ('useTicketCache="true" ticketCache="/c" keyTab="/k"', KerberosLogin(None, None, "/c")),
        (
            'useKeyTab=true storeKey=true doNotPrompt=true debug=false keyTab="/k" principal="a@B" '
            'serviceName="kafka" useTicketCache=false',
            KerberosLogin("a@B", "/k", None, "kafka"),
        ),
    ],
)
def test_a_login_with_kerberos_is_read(options: str, login: KerberosLogin) -> None:
    assert parse_jaas(f"{KERBEROS} required {options};") == login


def test_a_delegation_token_is_read() -> None:
    options = "required username=id password=hmac tokenauth=true;"
    assert parse_jaas(f"{SCRAM} {options}") == Login("id", "hmac", True)
    assert parse_jaas(f"{PLAIN} {options}") == Login("id", "hmac")  # as in Java


@given(st.text(), st.text())
def test_any_name_and_password_come_back(username: str, password: str) -> None:
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (username, password)]
    assert parse_jaas(f'{PLAIN} required username="{quoted[0]}" password="{quoted[1]}";') == Login(
        username, password
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be like"),
        (f'{PLAIN} required username="alice" password="s3cret"', "must be like"),
        (f'{PLAIN} username="alice" password="s3cret";', "must be like"),
        (
            f'{PLAIN} required username="alice" password="s3cret;',
            r"syntax error at character \d+",
        ),
        (
            f'{PLAIN} required username "alice" password="s3cret";',
            "one login module with options name=value",
        ),
        (
            (
                f'{PLAIN} required username="a" password="s3cret"; {PLAIN} required username="a" '
                'password="s3cret";'
            ),
            "one login module",
        ),
        (f'{PLAIN} required password="s3cret";', "username is missing"),
        (f'{PLAIN} required username="alice";', "password is missing"),
        (
            'x.LdapLoginModule required username="alice" password="s3cret";',
            "LdapLoginModule is not supported, only PlainLoginModule, Scram",
        ),
        (
            f'{KERBEROS} required keyTab="s3cret";',
            "are both false, but passwords are not supported",
        ),
        (f"{KERBEROS} required useKeyTab=true useTicketCache=true;", "are both true; set one"),
        (f"{KERBEROS} required useKeyTab=true principal=a;", "keyTab is missing"),
        (f"{KERBEROS} required useTicketCache=true renewTGT=true;", "renewTGT is not supported"),
        (f"{KERBEROS} required useTicketCache=true odd=s3cret;", "the option odd of Krb5Login"),
    ],
)
def test_a_wrong_one_is_explained_and_shows_no_secret(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^sasl.jaas.config: .*{words}") as raised:
        parse_jaas(text)
    assert "s3cret" not in str(raised.value)


@given(st.text(alphabet="ab =;\"'\\\\/*."))
def test_any_text_is_a_login_or_an_error(text: str) -> None:
    try:
        parse_jaas(text)
    except ConfigError:
        pass


# -- in each client --------------------------------------------------------------------------------

LOGIN = f'{PLAIN} required username="alice" password="s3cret";'
SASL: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
CLIENTS = (Producer, Consumer, Admin)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("way", ["constructor", "dots", "underscores"])
def test_each_client_has_the_setting(client: type[Any], way: str) -> None:
    settings = {**SASL, "sasl_jaas_config": LOGIN}
    if way == "constructor":
        made = client(**settings)
    else:
        sign = "." if way == "dots" else "_"
        made = client.from_config({name.replace("_", sign): settings[name] for name in settings})
    assert (made.config.sasl_username, made.config.sasl_password) == ("alice", "s3cret")
    assert "s3cret" not in repr(made.config)
    copy = dataclasses.replace(made.config, request_timeout_ms=5_000)
    assert copy.sasl_password == "s3cret", "a copy does not set the password twice"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"security_protocol": "SSL"},
            "sasl_jaas_config is set, but security_protocol='SSL' is without SASL",
        ),
        (
            {**SASL, "sasl_username": "bob"},
            "sasl_username and sasl_jaas_config are both set: set one of them",
        ),
        (
            {**SASL, "sasl_password": "other"},
            "sasl_password and sasl_jaas_config are both set: set one of them",
        ),
    ],
)
def test_settings_that_contradict_it_are_named(
    client: type[Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        client(**settings, sasl_jaas_config=LOGIN)


def test_kerberos_and_delegation_tokens_are_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))
    keytab = tmp_path / "a.keytab"
    keytab.touch()
    login = f'{KERBEROS} required useKeyTab=true keyTab="{keytab}" serviceName=kafka;'
    kerberos: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
    for service in (None, "kafka"):
        config = ClientConfig(
            **kerberos, sasl_jaas_config=login, sasl_kerberos_service_name=service
        )
        assert config.sasl_kerberos_keytab == str(keytab)
        assert config.sasl_kerberos_service_name == "kafka"
        assert dataclasses.replace(config) == config
    with pytest.raises(ConfigError, match="service_name and sasl_jaas_config are both set"):
        ClientConfig(**kerberos, sasl_jaas_config=login, sasl_kerberos_service_name="other")
    with pytest.raises(ConfigError, match="sasl_jaas_config is for GSSAPI, but sasl_mechanism"):
        ClientConfig(**SASL, sasl_jaas_config=login)
    keytab.unlink()  # what is read from it is checked as the settings themselves
    with pytest.raises(ConfigError, match=r"sasl_kerberos_keytab='.*a\.keytab': No such file"):
        ClientConfig(**kerberos, sasl_jaas_config=login)

    scram: dict[str, Any] = {**SASL, "sasl_mechanism": "SCRAM-SHA-512"}
    token = f"{SCRAM} required username=id password=s3cret tokenauth=true;"
    config = ClientConfig(**scram, sasl_jaas_config=token)
    assert config.sasl_delegation_token and config.sasl_username == "id"
    with pytest.raises(ConfigError, match="'PLAIN' does not use it"):
        ClientConfig(**SASL, sasl_jaas_config=token)


@pytest.mark.parametrize("option", ["-X", "--config-file"])
async def test_the_command_line_has_the_setting(tmp_path: Path, option: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"sasl.jaas.config={LOGIN}\n")
    security = BrokerSecurity(users={"alice": "s3cret"})
    async with EmbeddedCluster(security=security) as broker:
        command = [
            *(sys.executable, "-m", "aioprod", "topics", "list"),
            *("-b", broker.bootstrap_servers),
            *("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"),
            *(option, str(file) if option == "--config-file" else f"sasl.jaas.config={LOGIN}"),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, errors
    assert b"s3cret" not in errors
