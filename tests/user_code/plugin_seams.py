"""The rows of tokens, which all clients ask for alike, and of plug-ins that a client creates and
closes.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from aioprod import Producer, ProducerInterceptor
from aioprod.errors import AuthenticationError, ConfigError
from aioprod.oauth_token import OAuthToken
from aioprod.testing import BrokerSecurity
from tests.user_code import user_plugin
from tests.user_code.producer_seams import (
    QUICK,
    cluster,
    expect_next,
    expect_six,
    send_six,
    sending,
)
from tests.user_code.seams import Run, Seam, absorbed, caused, logged, provided

# -- tokens ---------------------------------------------------------------------------------------

SECURITY = BrokerSecurity(token_validator=lambda token, _: "alice")
OAUTH: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


async def good_token() -> OAuthToken:
    return OAuthToken("token")


async def first_token(provider: Any, run: Run) -> None:
    async with cluster(security=SECURITY) as broker:
        settings = {**QUICK, **OAUTH}
        other = Producer(broker.bootstrap_servers, **settings, sasl_oauth_token_provider=good_token)
        mine = partial(provider, run)
        producer = Producer(broker.bootstrap_servers, **settings, sasl_oauth_token_provider=mine)
        try:
            await asyncio.gather(other.start(), run.note(producer.start()))
            run.armed = False
            await expect_six(broker, await send_six(other))
            await asyncio.sleep(0.02)  # reconnect_backoff_max_ms, for wrong credentials
            await producer.start()
            await expect_next(producer)
        finally:
            await producer.close()
            await other.close()


def called(run: Run) -> Any:
    run.fail()
    return good_token()


async def awaited(run: Run) -> OAuthToken:
    await asyncio.sleep(0)
    run.fail()
    return await good_token()


class Early(random.Random):
    """Logs in again at a fourth of the session instead of near its end."""

    def uniform(self, a: float, b: float) -> float:
        return a * 0.3


async def next_token(run: Run) -> None:
    tokens = 0
    run.armed = False

    async def provide() -> OAuthToken:
        nonlocal tokens
        tokens += 1
        if run.armed and not run.raised:
            run.fail()
        return await good_token()

    security = BrokerSecurity(token_validator=lambda token, _: "alice", session_lifetime_ms=400)
    async with cluster(security=security) as broker:
        settings = {**OAUTH, "rng": Early(), "sasl_oauth_token_provider": provide}
        async with sending(broker, **settings) as producer:
            await expect_six(broker, await send_six(producer))
            run.armed, before = True, tokens
            while tokens < before + 2:  # it is called again, and sending goes on meanwhile
                await expect_next(producer)
            await expect_next(producer)
            assert len(broker.records("t")) >= 8


async def refused_token(run: Run) -> None:
    async def provide() -> OAuthToken:
        return await good_token() if run.raised else OAuthToken("old", on_refused=run.fail)

    def validate(token: str, _extensions: object) -> str | None:
        return None if token == "old" else "alice"

    async with cluster(security=BrokerSecurity(token_validator=validate)) as broker:
        settings = {**QUICK, **OAUTH, "sasl_oauth_token_provider": provide}
        producer = Producer(broker.bootstrap_servers, **settings)
        try:
            with pytest.raises(AuthenticationError, match="invalid_token"):
                await producer.start()
            await asyncio.sleep(0.02)  # reconnect_backoff_max_ms, for wrong credentials
            await producer.start()
            await expect_next(producer)
        finally:
            await producer.close()


PROVIDERS = [
    Seam(
        "sasl_oauth_token_provider",
        provided(AuthenticationError),
        partial(first_token, called),
        "call",
    ),
    Seam(
        "sasl_oauth_token_provider",
        provided(AuthenticationError),
        partial(first_token, awaited),
        "await",
    ),
    Seam("sasl_oauth_token_provider", absorbed, next_token, "next login"),
    Seam("OAuthToken(on_refused)", absorbed, refused_token),
]


# -- plug-ins that the client creates, configures and closes ---------------------------------------


class Part(ProducerInterceptor):
    """A plug-in that is created before the faulty one."""

    closed = 0

    def close(self) -> None:
        type(self).closed += 1


async def make(method: str, run: Run) -> None:
    closed = Part.closed
    kind = type("Faulty", (ProducerInterceptor,), {method: run.fail})

    async def from_config() -> Producer:
        return Producer.from_config({"interceptor.classes": [Part, kind]})

    await run.note(from_config())
    assert Part.closed == closed + 1


async def import_plugin(run: Run) -> None:
    closed = Part.closed

    async def from_config() -> Producer:
        return Producer.from_config(
            {"interceptor.classes": [Part, "tests.user_code.user_plugin.on_import.Part"]}
        )

    user_plugin.fail = run.fail
    await run.note(from_config())
    assert Part.closed == closed + 1


async def close_plugin(setting: str, run: Run) -> None:
    closed: list[str] = []

    class Plain:
        def __call__(self, topic: str, headers: object, data: Any) -> Any:
            return data

        def partition(self, *_: object) -> int:
            return 0

        def close(self) -> None:
            closed.append("plain")

    class Faulty(Plain):
        def close(self) -> None:
            run.fail()

    settings = {name: Plain() for name in ("key_serializer", "value_serializer", "partitioner")}
    async with cluster() as broker:
        async with sending(broker, **{**settings, setting: Faulty()}) as producer:
            await expect_six(broker, await send_six(producer))
    assert closed == ["plain"] * 2


PARTS = [
    Seam("plugin()", caused(ConfigError), partial(make, "__init__")),
    Seam("plugin.configure", caused(ConfigError), partial(make, "configure")),
    Seam("import of a plugin", caused(ConfigError), import_plugin),
    *(
        Seam("plugin.close", logged, partial(close_plugin, setting), setting)
        for setting in ("key_serializer", "value_serializer", "partitioner")
    ),
]

PLUGIN_SEAMS = [*PROVIDERS, *PARTS]
