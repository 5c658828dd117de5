"""Kerberos without a Kerberos server: settings, errors, limits and cancellation."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError, ConfigError
from aioprod.net.authentication import new_mechanism
from tests.net.fake_gssapi import FakeGssapi, GSSError

GSSAPI: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
FAILED = 0xD0000
NUMBERS = 0x100000000 - 1_765_328_384  # of Kerberos


@pytest.fixture
async def gssapi(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeGssapi]:
    fake = FakeGssapi()
    monkeypatch.setitem(sys.modules, "gssapi", fake)
    yield fake
    fake.gate.set()  # threads end


async def login(**settings: Any) -> object:
    return await new_mechanism(ClientConfig(**GSSAPI, **settings), "broker-1")


async def test_the_name_of_the_broker_and_where_tickets_are(
    gssapi: FakeGssapi, tmp_path: Path
) -> None:
    keytab = tmp_path / "a.keytab"
    keytab.touch()
    await login()
    await login(
        sasl_kerberos_service_name="k", sasl_kerberos_domain_name="all", sasl_kerberos_keytab=keytab
    )
    await login(sasl_kerberos_ticket_cache="DIR:/c", sasl_kerberos_principal="alice@EXAMPLE.COM")
    names = [text for text, kind in gssapi.names if kind == "service"]
    assert names == ["kafka@broker-1", "k@all", "kafka@broker-1"]
    assert ("alice@EXAMPLE.COM", "principal") in gssapi.names
    environment, by_keytab, by_cache = gssapi.stores
    assert environment is None and by_cache == {"ccache": "DIR:/c"}
    assert isinstance(by_keytab, dict) and by_keytab["client_keytab"] == str(keytab)
    assert by_keytab["ccache"].startswith("MEMORY:")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (6, "the text; check sasl_kerberos_keytab and sasl_kerberos_principal"),
        (7, "the text; check sasl_kerberos_service_name"),
        (24, "the text; check sasl_kerberos_keytab"),
        (32, "the text; request a ticket with kinit"),
        (37, "the text; compare the clocks"),
        (148, "the text; compare the clocks"),
        (99, "the text$"),
    ],
)
async def test_errors_of_kerberos_have_an_advice(
    gssapi: FakeGssapi, number: int, text: str
) -> None:
    gssapi.error = GSSError(FAILED, NUMBERS + number, ["the text"])
    with pytest.raises(AuthenticationError, match=f"^Kerberos: kafka@broker-1: {text}"):
        await login()


async def test_other_errors(gssapi: FakeGssapi) -> None:
    gssapi.error = GSSError(FAILED, 0, [])
    with pytest.raises(AuthenticationError, match=r"kafka@broker-1: .*the major code"):
        await login()
    gssapi.error = ValueError("hush")
    with pytest.raises(AuthenticationError, match=r"kafka@broker-1: ValueError$"):
        await login()
    gssapi.error = GSSError(FAILED, NUMBERS + 156, ["no KDC"])
    with pytest.raises(BrokerConnectionError, match=r"^Kerberos: no KDC"):
        await login()


async def test_a_broker_that_answers_nonsense(gssapi: FakeGssapi) -> None:
    mechanism: Any = await login()
    assert mechanism.first_message() == b"first"
    with pytest.raises(AuthenticationError, match=r"message is not valid: .*the major code"):
        mechanism.answer(b"nonsense")


async def test_a_silent_kerberos_server_has_a_limit_and_few_threads(gssapi: FakeGssapi) -> None:
    gssapi.gate.clear()
    asked = [login(request_timeout_ms=100) for _ in range(12)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    text = "Kerberos: no ticket for kafka@broker-1 within request_timeout_ms=100"
    assert {f"{type(each).__name__}: {each}" for each in outcomes} == {
        f"BrokerConnectionError: {text}"
    }
    assert gssapi.entered == 4
    gssapi.gate.set()
    async with asyncio.timeout(20):
        await login()  # once the threads have ended


async def test_a_cancelled_login_gives_its_thread_back(gssapi: FakeGssapi) -> None:
    gssapi.gate.clear()
    logins = [asyncio.create_task(login()) for _ in range(8)]
    for _ in range(4):
        assert await asyncio.to_thread(gssapi.entering.acquire, timeout=20)
    for each in logins:
        each.cancel()
    await asyncio.gather(*logins, return_exceptions=True)
    assert all(each.cancelled() for each in logins)
    gssapi.gate.set()
    async with asyncio.timeout(20):
        await asyncio.gather(*(login() for _ in range(8)))


def test_no_loop_waits_for_a_silent_kerberos_server_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gssapi = FakeGssapi()
    monkeypatch.setitem(sys.modules, "gssapi", gssapi)
    gssapi.gate.clear()
    with pytest.raises(BrokerConnectionError, match="no ticket"):
        asyncio.run(login(request_timeout_ms=50))
    threads = [each for each in threading.enumerate() if each.name == "aioprod-kerberos"]
    assert len(threads) == 1 and threads[0].daemon
    gssapi.gate.set()
    threads[0].join(20)
    assert not threads[0].is_alive()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"sasl_kerberos_keytab": "/absent"}, "keytab='/absent': No such file or directory"),
        ({"sasl_kerberos_keytab": "FILE:/absent"}, "keytab='FILE:/absent': No such file"),
        ({"sasl_kerberos_keytab": 5}, "sasl_kerberos_keytab: must be a path, not int"),
        ({"sasl_kerberos_ticket_cache": 5}, "sasl_kerberos_ticket_cache: must be a path, not int"),
        ({"sasl_kerberos_principal": ""}, "sasl_kerberos_principal: must not be empty"),
        ({"sasl_kerberos_domain_name": "a\0"}, "sasl_kerberos_domain_name: must not .* NUL"),
        ({"sasl_kerberos_service_name": "kafka/a"}, "service_name='kafka/a': must be the first"),
        (
            {"sasl_kerberos_keytab": __file__, "sasl_kerberos_ticket_cache": "/tmp/c"},
            "sasl_kerberos_keytab and sasl_kerberos_ticket_cache are both set",
        ),
        ({"sasl_password": "x"}, "sasl_password is set, but sasl_mechanism='GSSAPI' does not use"),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_kerberos_principal": "a"},
            "needs sasl_oauth_token_provider",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_password": "b",
                "sasl_kerberos_principal": "a",
            },
            "sasl_kerberos_principal is set, but sasl_mechanism='PLAIN' does not use it",
        ),
        (
            {"security_protocol": "SSL", "sasl_mechanism": None, "sasl_kerberos_principal": "a"},
            "sasl_kerberos_principal is set, but security_protocol='SSL' is without SASL",
        ),
    ],
)
async def test_settings_that_can_not_work(
    gssapi: FakeGssapi, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        ClientConfig(**{**GSSAPI, **settings})


@pytest.mark.parametrize("error", [None, OSError("libgssapi_krb5.so.2: cannot open")])
def test_a_missing_library(error: OSError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str, *_: object) -> None:
        if name == "gssapi" and error is not None:
            raise error

    class Finder:
        pass

    Finder.find_spec = staticmethod(find_spec)  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "gssapi", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder])
    reason = "" if error is None else r" \(libgssapi_krb5.so.2: cannot open\)"
    with pytest.raises(ConfigError, match=rf'library{reason}: pip install "aioprod\[kerberos\]"$'):
        ClientConfig(**GSSAPI)
