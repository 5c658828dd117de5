"""Logins in Java's own way: what is read, and that a wrong one says what to write without telling
the password.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.config.jaas import Login, parse_jaas
from aioprod.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


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
            r"can't be understood from character \d+ on",
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
            'com.sun.security.auth.module.Krb5LoginModule required keyTab="s3cret";',
            "Krb5LoginModule is not supported, only PlainLoginModule and",
        ),
        (
            'x.ScramLoginModule required username="alice" password="s3cret" tokenauth=true;',
            "delegation tokens",
        ),
    ],
)
def test_a_wrong_one_is_explained_and_tells_no_secret(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^sasl.jaas.config: .*{words}") as raised:
        parse_jaas(text)
    assert "s3cret" not in str(raised.value)


@given(st.text(alphabet="ab =;\"'\\\\/*."))
def test_any_text_is_a_login_or_an_error(text: str) -> None:
    try:
        parse_jaas(text)
    except ConfigError:
        pass
