"""Tokens for Amazon MSK: compared with those of AWS's own signer, and checked as AWS does."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import botocore.auth
import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.credentials import Credentials

from aioprod import Producer
from aioprod.errors import AuthenticationError, ConfigError
from aioprod.oauth import AwsTokens, TokenRequestError
from aioprod.oauth.aws import token
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.oauth.clouds import Clouds

NOW = datetime(2026, 11, 24, 12, 30, 45)
KEY, SECRET, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/+=token"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what the test gives is found, and no metadata service is asked."""
    names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION")
    for name in (*names, "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def in_environment(monkeypatch: pytest.MonkeyPatch, session: str | None = SESSION) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    if session is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", session)


def decoded(value: str) -> tuple[str, str]:
    """The signed URL, and the user agent that follows it."""
    assert "=" not in value
    url = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode()
    signed, _, agent = url.partition("&User-Agent=")
    return signed, agent


def signature_of(url: str, secret: str) -> str:
    """Signature Version 4 of a query, by AWS's description of it."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, strict_parsing=True))
    query.pop("X-Amz-Signature")
    pairs = sorted((quote(name, safe="-_.~"), quote(query[name], safe="-_.~")) for name in query)
    canonical = "\n".join(
        (
            *("GET", parts.path, "&".join(f"{name}={value}" for name, value in pairs)),
            *(f"host:{parts.netloc}\n", "host", hashlib.sha256(b"").hexdigest()),
        )
    )
    _, *scope = query["X-Amz-Credential"].split("/")
    signed = "\n".join(
        (
            *("AWS4-HMAC-SHA256", query["X-Amz-Date"], "/".join(scope)),
            hashlib.sha256(canonical.encode()).hexdigest(),
        )
    )
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, signed.encode(), "sha256").hexdigest()


def user_of(value: str, extensions: Any = None) -> str | None:
    """Return the access key of a token with a correct signature, as MSK determines it."""
    query = dict(parse_qsl(urlsplit(decoded(value)[0]).query))
    valid = query["X-Amz-Signature"] == signature_of(decoded(value)[0], SECRET)
    return query["X-Amz-Credential"].partition("/")[0] if valid else None


@pytest.mark.parametrize("session", [None, SESSION])
@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1", "cn-north-1"])
async def test_tokens_are_those_of_awss_own_signer(
    monkeypatch: pytest.MonkeyPatch, region: str, session: str | None
) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW)
    in_environment(monkeypatch, session)
    expected, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    ours = (await AwsTokens(region)()).value
    assert decoded(ours)[0] == decoded(expected)[0]
    assert decoded(ours)[1].startswith("aioprod%2F")
    assert expires_ms == (NOW.replace(tzinfo=UTC).timestamp() + 900) * 1000
    query = dict(parse_qsl(urlsplit(decoded(ours)[0]).query))
    assert query["X-Amz-Signature"] == signature_of(decoded(ours)[0], SECRET)
    assert query.get("X-Amz-Security-Token") == session


def test_the_check_itself_knows_awss_published_example() -> None:
    url = (
        "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )
    # S3 does not sign the content: its hash is a word.
    unsigned = "UNSIGNED-PAYLOAD"
    real = hashlib.sha256

    class Named:
        def __init__(self, content: bytes) -> None:
            self.content = content

        def hexdigest(self) -> str:
            return real(self.content).hexdigest() if self.content else unsigned

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hashlib, "sha256", Named)
        computed = signature_of(url, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    assert computed == dict(parse_qsl(urlsplit(url).query))["X-Amz-Signature"]


async def test_a_token_is_kept_until_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    in_environment(monkeypatch)
    ask = AwsTokens("us-east-1", extensions={"name": "value"})
    first = await ask()
    assert await ask() == first and first.extensions == {"name": "value"}


async def test_a_producer_logs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    in_environment(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    async with EmbeddedCluster(security=BrokerSecurity(token_validator=user_of)) as broker:
        given = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauth.token.provider": "aioprod.oauth.aws.token",
        }
        async with Producer.from_config(given) as producer:
            await producer.send_and_wait("orders", b"1")
        wrong = AwsTokens("eu-west-1", credentials=Credentials(KEY, "another"))
        with pytest.raises(AuthenticationError, match="OAUTHBEARER"):
            await Producer(
                broker.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=wrong,
            ).start()
    assert (await token()).value


@pytest.fixture
async def clouds() -> AsyncIterator[Clouds]:
    async with Clouds().running() as running:
        yield running


async def test_the_loop_runs_on_while_botocore_waits(
    monkeypatch: pytest.MonkeyPatch, clouds: Clouds
) -> None:
    """The service that botocore waits for runs in this event loop."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{clouds.url}/container")
    clouds.gate = asyncio.Event()
    ask = AwsTokens("us-east-1")
    cancelled = asyncio.ensure_future(ask())
    await clouds.waiting.wait()
    cancelled.cancel()
    patient = asyncio.ensure_future(ask())
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    clouds.gate.set()
    query = dict(parse_qsl(urlsplit(decoded((await patient).value)[0]).query))
    assert query["X-Amz-Security-Token"] == "session-token"
    assert len(clouds.requests) == 1  # it waited for the thread of the cancelled call


class TestErrors:
    async def test_no_credentials(self) -> None:
        with pytest.raises(TokenRequestError, match="AwsTokens: no AWS credentials found"):
            await AwsTokens("us-east-1")()

    async def test_no_region(self, monkeypatch: pytest.MonkeyPatch) -> None:
        in_environment(monkeypatch)
        with pytest.raises(TokenRequestError, match="no region: set region or AWS_REGION"):
            await AwsTokens()()

    async def test_a_region_that_is_not_a_region(self, monkeypatch: pytest.MonkeyPatch) -> None:
        in_environment(monkeypatch)
        monkeypatch.setenv("AWS_REGION", "Ireland (eu-west-1)")
        with pytest.raises(TokenRequestError, match=r"region 'Ireland \(eu-west-1\)' is not the"):
            await AwsTokens()()

    async def test_a_library_that_hangs(self) -> None:
        gate = threading.Event()

        class Hanging:
            def get_frozen_credentials(self) -> object:
                gate.wait(60)
                return Credentials(KEY, SECRET).get_frozen_credentials()

        ask = AwsTokens("us-east-1", credentials=Hanging(), timeout_ms=20)
        try:
            with pytest.raises(TokenRequestError, match="AwsTokens: no token within timeout_ms=20"):
                await ask()
        finally:
            gate.set()

    async def test_a_library_that_is_later_than_the_limit(self) -> None:
        gate, ended = threading.Event(), threading.Event()
        asked = 0

        class Slow:
            def get_frozen_credentials(self) -> object:
                nonlocal asked
                asked += 1
                gate.wait(60)
                ended.set()
                return Credentials(KEY, SECRET).get_frozen_credentials()

        ask = AwsTokens("us-east-1", credentials=Slow(), timeout_ms=20)
        with pytest.raises(TokenRequestError, match="AwsTokens: no token within timeout_ms=20"):
            await ask()
        gate.set()
        await asyncio.to_thread(ended.wait, 60)
        (running,) = ask._running.values()
        await asyncio.wait([running])
        assert (await ask()).value and (await ask()).value
        assert asked == 1  # the token of the late call was taken, and is kept

    async def test_what_botocore_says(self) -> None:
        with pytest.raises(TokenRequestError, match=r"ProfileNotFound: .*\(absent\)"):
            await AwsTokens("us-east-1", profile="absent")()

    async def test_text_of_foreign_errors_is_not_shown(self) -> None:
        class Mine:
            def get_frozen_credentials(self) -> object:
                raise ValueError(SECRET)

        with pytest.raises(TokenRequestError, match=r"AwsTokens: ValueError$") as caught:
            await AwsTokens("us-east-1", credentials=Mine())()
        assert caught.value.__cause__ is None and caught.value.__context__ is None

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"region": ""}, "region=''"),
            ({"region": "eu/../west"}, "region='eu/../west': must be the name of a region"),
            ({"region": "EU-WEST-1\n"}, "such as eu-west-1"),
            ({"profile": " "}, "profile=' '"),
            ({"timeout_ms": 0}, "timeout_ms=0: must be a number above 0"),
            ({"credentials": SECRET}, "must be credentials of botocore, not a str"),
            ({"credentials": Credentials(KEY, SECRET), "profile": "p"}, "set one of them"),
        ],
    )
    def test_arguments(self, given: dict[str, Any], text: str) -> None:
        with pytest.raises(ConfigError, match=text) as caught:
            AwsTokens(**given)
        assert SECRET not in str(caught.value)

    def test_without_botocore(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(AwsTokens, "_library", ("botocore_absent.session", "aws"))
        with pytest.raises(ConfigError, match=r'pip install "aioprod\[aws\]"'):
            AwsTokens()
