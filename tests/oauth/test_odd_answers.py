"""Each token provider, with services and libraries that answer what they should not."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod import KafkaError
from aioprod.errors import AuthenticationError
from aioprod.oauth import (
    AwsTokens,
    AzureTokens,
    ClientCredentials,
    GoogleTokens,
    JwtBearer,
    TokenRequestError,
)
from aioprod.oauth.cache import Token
from aioprod.oauth.endpoint import lifetime_of
from aioprod.oauth_token import OAuthToken
from aioprod.protocol.sasl.oauthbearer import OAuthBearerClient
from tests.odd_answers import BODIES, REASONS, RESPONSES, SECRET, OddServer, check_text, response

LIMITS: dict[str, Any] = {"timeout_ms": 30, "request_timeout_ms": 5_000}
Make = Callable[[str, Path], Any]


def client_credentials(url: str, folder: Path) -> ClientCredentials:
    return ClientCredentials(url, "service", SECRET, **LIMITS)


def jwt_bearer(url: str, folder: Path) -> JwtBearer:
    file = folder / "assertion"
    file.write_text(f"a.{SECRET}.c")
    return JwtBearer(url, file, **LIMITS)


PROVIDERS: list[Make] = [client_credentials, jwt_bearer]


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def token_of(claims: bytes) -> str:
    return f"{encoded(b'{}')}.{encoded(claims)}.x"


TOKENS = {
    "newline": {"access_token": "a\nb"},
    "separator of SASL": {"access_token": "a\x01auth=b"},
    "half of a pair": {"access_token": "\ud800"},
    "not ASCII": {"access_token": "tökén"},
    "spaces inside": {"access_token": "a b"},
    "megabyte": {"access_token": "x" * 2_000_000},
    "list": {"access_token": ["a"]},
    "expires of many digits": {"access_token": "a", "expires_in": 10**4000},
    "expires in text of many digits": {"access_token": "a", "expires_in": "9" * 5_000},
    "expires in other digits": {"access_token": "a", "expires_in": "٣٦٠٠"},
    "expires in a power": {"access_token": "a", "expires_in": "²"},
    "expires in a list": {"access_token": "a", "expires_in": [1]},
    "expires before": {"access_token": "a", "expires_in": -5},
    "exp of many digits": {"access_token": token_of(b'{"exp": %s}' % (b"9" * 4_000))},
    "exp below": {"access_token": token_of(b'{"exp": -%s, "iat": 1}' % (b"9" * 4_000))},
    "iat of many digits": {"access_token": token_of(b'{"exp": 1, "iat": %s}' % (b"9" * 4_000))},
    "exp of text": {"access_token": token_of(b'{"exp": "x"}')},
    "exp without end": {"access_token": token_of(b'{"exp": 1e999, "iat": -1e999}')},
    "deep claims": {"access_token": token_of(b"[" * 100_000)},
    "claims of bytes": {"access_token": token_of(bytes(range(256)))},
}


async def outcome_of(make: Make, folder: Path, answer: bytes) -> OAuthToken | KafkaError:
    server = OddServer()
    server.answer = answer
    async with server.running():
        try:
            token = await make(server.url + "/token", folder)()
        except KafkaError as error:
            check_text(error)
            assert error.__cause__ is None or isinstance(error.__cause__, KafkaError)
            return error
        assert isinstance(token, OAuthToken)
        OAuthBearerClient(token.value, token.extensions).first_message()
        return token


@pytest.mark.parametrize("make", PROVIDERS)
@pytest.mark.parametrize("body", BODIES)
async def test_a_body_without_a_token(make: Make, body: str, tmp_path: Path) -> None:
    await outcome_of(make, tmp_path, response(BODIES[body]))


@pytest.mark.parametrize("make", PROVIDERS)
@pytest.mark.parametrize("reason", REASONS)
async def test_the_reason_of_a_refusal(
    make: Make, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "timeout_ms", 20_000)  # not retried
    for status in (b"400 Bad", b"401 No"):
        error = await outcome_of(make, tmp_path, response(REASONS[reason], status))
        assert isinstance(error, TokenRequestError)
        assert len(str(error)) < 1_000


@pytest.mark.parametrize("make", PROVIDERS)
@pytest.mark.parametrize("kind", RESPONSES)
async def test_a_response_that_is_none(make: Make, kind: str, tmp_path: Path) -> None:
    assert isinstance(await outcome_of(make, tmp_path, RESPONSES[kind]), KafkaError)


@pytest.mark.parametrize("make", PROVIDERS)
@pytest.mark.parametrize("kind", TOKENS)
async def test_an_odd_token(make: Make, kind: str, tmp_path: Path) -> None:
    await outcome_of(make, tmp_path, response(json.dumps(TOKENS[kind]).encode()))


def odd_credentials(token: Any, expires: Any) -> list[Any]:
    """Credentials of the clouds' libraries that answer this."""

    class Google:
        def refresh(self, request: object) -> None:
            self.token, self.expiry = token, expires

    frozen = SimpleNamespace(access_key=token, secret_key=token, token=expires)
    return [
        AzureTokens(
            scope="s",
            credential=SimpleNamespace(
                get_token=lambda *scopes: SimpleNamespace(token=token, expires_on=expires)
            ),
        ),
        GoogleTokens("p", credentials=Google()),
        AwsTokens("eu-west-1", credentials=SimpleNamespace(get_frozen_credentials=lambda: frozen)),
    ]


@pytest.mark.parametrize("token", [None, 5, "", "a\nb", "\ud800", b"a", "a"])
@pytest.mark.parametrize("expires", [None, 10**400, "x", float("nan"), float("inf"), -1, 1e300])
async def test_libraries_of_clouds(token: Any, expires: Any) -> None:
    for tokens in odd_credentials(token, expires):
        try:
            found = await tokens()
            OAuthBearerClient(found.value, found.extensions).first_message()
        except AuthenticationError as error:
            check_text(error)


@settings(max_examples=100)
@given(st.binary(max_size=40) | st.from_regex(rb'\{"(exp|iat)":-?[0-9e.]{1,30}\}', fullmatch=True))
def test_any_claims_have_a_lifetime_that_can_be_added_or_none(claims: bytes) -> None:
    lifetime = lifetime_of(token_of(claims))
    assert lifetime is None or abs(lifetime) <= 1e9


@settings(max_examples=100)
@given(st.text() | st.text(st.characters(max_codepoint=127)), st.floats())
def test_any_text_is_a_token_that_can_be_sent_or_refused(text: str, lifetime: float) -> None:
    try:
        token = Token(text, lifetime)
    except TokenRequestError as error:
        check_text(error)
    else:
        OAuthBearerClient(token.value, {}).first_message()
