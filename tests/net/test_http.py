"""Proxies, redirects and path prefixes, for registries and identity providers alike."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from aioprod import ConfigError, KafkaError
from aioprod.net.http import HttpFailure, HttpRequest, proxy_for, redirected
from aioprod.oauth import ClientCredentials
from aioprod.schema_registry import SchemaRegistry
from tests.plain_server import serving

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
ANSWER = b'["s"]'
TOKEN = b'{"access_token": "t", "expires_in": 60}'


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


# -- decisions -------------------------------------------------------------------------------------

LOGIN = {"Authorization": "Basic c2VjcmV0"}


def where(
    url: str, location: str, status: int = 302, method: str = "GET", **parts: Any
) -> str | HttpFailure:
    parts.setdefault("headers", LOGIN)
    return redirected(HttpRequest(method, url, **parts), status, location)


@pytest.mark.parametrize(
    ("url", "location", "target"),
    [
        ("https://a/x", "/y?z=1", "https://a/y?z=1"),
        ("https://a/x/y", "z", "https://a/x/z"),
        ("https://a/x", "https://a:443/y", "https://a:443/y"),
        ("https://a/x", "https://A/y#part", "https://A/y"),
        ("http://a/x", "https://a/x", "https://a/x"),
        ("http://a:80/x", "https://a:443/x", "https://a:443/x"),
        ("http://a:8081/x", "//a:8081/y", "http://a:8081/y"),
        ("http://[::1]:8081/x", "/y", "http://[::1]:8081/y"),
    ],
)
def test_a_redirect_at_the_same_place_is_followed(url: str, location: str, target: str) -> None:
    assert where(url, location) == target
    assert where(url, location, 307, "POST", body=b"{}") == target


@pytest.mark.parametrize(
    ("url", "location", "reason"),
    [
        ("https://a/x", "https://b/x", "the credentials are for a"),
        ("https://a/x", "https://a:8443/x", "the credentials are for a"),
        ("https://a/x", "https://a.b/x", "the credentials are for a"),
        ("http://a:8081/x", "https://a/x", "the credentials are for a:8081"),
        ("https://a/x", "http://a/x", "from https to http"),
        ("https://a/x", "//b/x", "the credentials are for a"),
        ("https://a/x", "ftp://a/x", "not an HTTP URL"),
        ("https://a/x", "file:///etc/passwd", "not an HTTP URL"),
        ("https://a/x", "javascript:alert(1)", "not an HTTP URL"),
        ("https://a/x", "https://u:p@a/x", "not an HTTP URL"),
        ("https://a/x", "https://a:99999/x", "not an HTTP URL"),
        ("https://a/x", "https://[x/", "not an HTTP URL"),
        ("https://a/x", "https://a /x", "not an HTTP URL"),
        ("https://a/x", "", "without a location"),
    ],
)
def test_a_redirect_elsewhere_is_refused_with_the_reason(
    url: str, location: str, reason: str
) -> None:
    failure = where(url, location)
    assert isinstance(failure, HttpFailure) and failure.status == 302
    assert reason in failure.text and "u:p" not in failure.text


def test_without_credentials_a_redirect_may_lead_to_another_host_but_not_out_of_tls() -> None:
    assert where("https://a/x", "https://b/x", headers={}) == "https://b/x"
    assert where("https://a/x", "https://b/x", 307, "POST", headers={}, body=b"1") == "https://b/x"
    assert isinstance(where("https://a/x", "http://b/x", headers={}), HttpFailure)
    form = where("https://a/x", "https://b/x", 307, "POST", headers={}, body=b"1", secrets=("s",))
    assert isinstance(form, HttpFailure), "a secret in the body"


def test_a_post_is_not_made_a_get() -> None:
    for status in (301, 302, 303):
        failure = where("https://a/x", "/y", status, "POST", body=b"{}")
        assert isinstance(failure, HttpFailure) and "would become a GET" in failure.text
    assert where("https://a/x", "/y", 308, "DELETE") == "https://a/y"


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://a", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://a", "http://p:1"),
        ({"https_proxy": "http://p:1"}, "https://a", "http://p:1"),
        ({"HTTPS_PROXY": "p:1"}, "https://a", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://a", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://a:8081", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://a", None),
        ({"ALL_PROXY": "http://p:1"}, "https://a", "http://p:1"),
        ({"ALL_PROXY": "socks5://p:1", "HTTPS_PROXY": "http://q:1"}, "https://a", "http://q:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b, a"}, "https://a", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".corp"}, "https://a.corp", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "corp"}, "https://a.corp", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "corp"}, "https://acorp", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a:8443"}, "https://a:8443", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a:8443"}, "https://a", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://a", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https://10.1.2.3", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https://11.0.0.1", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "fd00::/8"}, "https://[fd00::1]:8", None),
        ({"HTTPS_PROXY": ""}, "https://a", None),
    ],
)
def test_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str, proxy: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


@pytest.mark.parametrize("proxy", ["socks5://me:hush@p:1", "me:hush@p:99999", "http://"])
def test_a_proxy_of_another_kind_is_an_error_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ConfigError, match="HTTPS_PROXY is not the URL of an HTTP proxy") as caught:
        proxy_for("https://a")
    assert "hush" not in str(caught.value)


# -- both clients, through proxies and redirects ---------------------------------------------------

Ask = Callable[..., Awaitable[Any]]


async def ask_registry(url: str, **options: Any) -> Any:
    async with SchemaRegistry(
        url, basic_auth=("ann", "s3cret-pw"), timeout_ms=20_000, **options
    ) as registry:
        return await registry.subjects()


async def ask_registry_with_post(url: str, **options: Any) -> Any:
    async with SchemaRegistry(
        url, bearer_token="s3cret-pw", timeout_ms=20_000, **options
    ) as registry:
        await registry.set_mode("READONLY")
        return ["s"]


async def ask_identity_provider(url: str, **options: Any) -> Any:
    token = await ClientCredentials(url, "ann", "s3cret-pw", timeout_ms=20_000, **options)()
    return ["s"] if token.value == "t" else token


CLIENTS: list[Ask] = [ask_registry, ask_registry_with_post, ask_identity_provider]


class Service:
    """A registry and identity provider. ``redirect`` is the status and location of its answers to
    paths that do not begin with ``/moved``; ``heads`` are those of its requests.
    """

    def __init__(self, redirect: tuple[int, str] | None = None) -> None:
        self.redirect = redirect
        self.heads: list[str] = []
        self.port = 0

    @asynccontextmanager
    async def running(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Service]:
        async with serving(self._serve, context=context) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        _, _, rest = head.lower().partition("content-length:")
        form = await reader.readexactly(int(rest.split("\r\n")[0] or 0))
        body = TOKEN if b"grant_type" in form else ANSWER
        status, location = "200 OK", ""
        if self.redirect is not None and "/moved" not in head.split()[1]:
            status, location = f"{self.redirect[0]} Moved", f"Location: {self.redirect[1]}\r\n"
        writer.write(
            f"HTTP/1.1 {status}\r\n{location}Connection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()

    @property
    def targets(self) -> list[str]:
        return [head.split()[1] for head in self.heads]


class Proxy:
    """A proxy for CONNECT: leads each connection to a service on this machine."""

    def __init__(self, to_port: int) -> None:
        self.heads: list[str] = []
        self.port = 0
        self._to_port = to_port

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        async with serving(self._serve) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        service_reader, service_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await asyncio.gather(_copy(reader, service_writer), _copy(service_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def context_of(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.mark.parametrize("ask", CLIENTS)
@pytest.mark.parametrize("by_environment", [True, False])
async def test_https_goes_through_the_tunnel_of_a_proxy(
    ask: Ask, by_environment: bool, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service()
    async with (
        service.running(context_of(authority, "registry.corp.example")),
        Proxy(service.port).running() as proxy,
    ):
        url = f"http://me:hu%2Fsh@127.0.0.1:{proxy.port}"
        if by_environment:
            monkeypatch.setenv("HTTPS_PROXY", url)
        options = {} if by_environment else {"proxy": url}
        found = await ask(
            "https://registry.corp.example/prefix", ssl_context=trusting(authority), **options
        )
    assert found == ["s"]
    (head,) = proxy.heads
    assert head.startswith("CONNECT registry.corp.example:443 ")
    login = base64.b64encode(b"me:hu/sh").decode()
    assert f"proxy-authorization: basic {login.lower()}" in head.lower()
    assert "\nauthorization" not in head.lower(), "the proxy sees no credentials of the service"
    (head,) = service.heads
    assert head.split()[1].startswith("/prefix")
    assert "\r\nauthorization: " in head.lower() and "proxy-" not in head.lower()


@pytest.mark.parametrize("ask", CLIENTS)
@pytest.mark.parametrize("by_environment", [True, False])
async def test_http_goes_to_the_proxy_with_the_whole_address(
    ask: Ask, by_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Service().running() as proxy:
        url = f"http://me:hush@127.0.0.1:{proxy.port}"
        if by_environment:
            monkeypatch.setenv("HTTP_PROXY", url)
        options = {} if by_environment else {"proxy": url}
        assert await ask("http://registry.corp.example:8081/prefix", **options) == ["s"]
    (head,) = proxy.heads
    assert proxy.targets[0].startswith("http://registry.corp.example:8081/prefix")
    assert "proxy-authorization: basic bwu6ahvzaa==" in head.lower()


@pytest.mark.parametrize("ask", CLIENTS)
async def test_an_excluded_host_is_reached_without_the_proxy(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with Service().running() as service:
        assert await ask(f"http://127.0.0.1:{service.port}") == ["s"]


@pytest.mark.parametrize("ask", CLIENTS)
@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_is_followed_with_method_body_and_credentials(
    ask: Ask, status: int
) -> None:
    async with Service((status, "/moved/here?a=b")).running() as service:
        assert await ask(f"http://127.0.0.1:{service.port}/prefix") == ["s"]
    first, second = service.heads
    assert service.targets[1] == "/moved/here?a=b"
    assert first.split()[0] == second.split()[0], "the method"
    for head in (first, second):
        assert "\r\nauthorization: " in head.lower()


@pytest.mark.parametrize("ask", CLIENTS)
async def test_credentials_do_not_follow_to_another_host(ask: Ask) -> None:
    async with Service().running() as other:
        location = f"http://127.0.0.1:{other.port}/moved"
        async with Service((307, location)).running() as service:
            with pytest.raises(KafkaError, match="use its address") as caught:
                await ask(f"http://127.0.0.1:{service.port}")
    assert location in str(caught.value)
    assert other.heads == [] and len(service.heads) == 1, "one request, and no retry"


@pytest.mark.parametrize("ask", CLIENTS)
async def test_redirects_end(ask: Ask) -> None:
    async with Service((307, "?")).running() as service:
        with pytest.raises(KafkaError, match="more than 5 redirects"):
            await ask(f"http://127.0.0.1:{service.port}/")
    assert len(service.heads) == 6


async def test_no_credentials_come_from_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "netrc"
    file.write_text("machine 127.0.0.1 login other password stranger\n")
    monkeypatch.setenv("NETRC", str(file))
    async with Service().running() as service:
        assert await ask_registry(f"http://127.0.0.1:{service.port}") == ["s"]
    right = base64.b64encode(b"ann:s3cret-pw").decode()
    assert f"Basic {right}" in service.heads[0]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://[::1", "must begin with http"),
        ("http://a:99999", "must begin with http"),
        ("http://a b/", "must begin with http"),
        ("https://a/?x=1", "without"),
        (5, "must be text"),
        ([5], "must be text"),
    ],
)
def test_an_address_that_is_none(url: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        SchemaRegistry(url)


@pytest.mark.parametrize(
    "options",
    [
        {"proxy": "socks5://p:1"},
        {"proxy": 5},
        {"ssl_context": True},
        {"basic_auth": ("a", 5)},
        {"basic_auth": "a:b"},
        {"bearer_token": "a\nb"},
        {"timeout_ms": float("nan")},
    ],
)
def test_options_that_are_none(options: Any) -> None:
    with pytest.raises(ConfigError):
        SchemaRegistry("http://a", **options)
