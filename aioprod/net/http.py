"""HTTP requests to schema registries and identity providers, with proxies, redirects, and limits on
responses.

Requests contain credentials. They are removed from the texts of failures, which servers and the
HTTP library write. A failure is returned, not raised, since the frames of an exception would
contain them. Requires aiohttp.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from aioprod.errors import ConfigError
from aioprod.foreign_text import reason_of
from aioprod.secret_forms import secret_forms

_MOST_REDIRECTS = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_KEEP_METHOD = frozenset((307, 308))
_MOST_OF_URL = 200


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. The URL contains no user name or password.

    Attributes:
        secrets: texts to remove from failures, such as the password in a header.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


class HttpResponse(NamedTuple):
    """A response. One that is too large is cut off one byte after the limit.

    Attributes:
        status, reason: status code and reason phrase; the latter is safe to show.
        content: the decompressed body.
    """

    status: int
    reason: str
    content: bytes


class HttpFailure(NamedTuple):
    """The reason why there is no response.

    Attributes:
        text: the reason; safe to show.
        sent: whether the server may have received the request.
        status: status code of a redirect that was not followed, or of a proxy's refusal; 0 if the
            request is invalid.
    """

    text: str
    sent: bool = True
    status: int | None = None


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """Options of requests.

    Attributes:
        ssl_context: TLS context; None uses the system's trusted certificates.
        proxy: URL of an HTTP proxy; None uses that of the environment.
        timeout_ms: limit on a request with its redirects.
        max_bytes: largest size of a response.
    """

    ssl_context: ssl.SSLContext | None
    proxy: str | None = field(repr=False)
    timeout_ms: float
    max_bytes: int


def http_url(text: object) -> SplitResult | None:
    """Return the parts of an HTTP or HTTPS URL; None for anything else."""
    try:
        parts = urlsplit(text) if isinstance(text, str) and text.isprintable() else None
        if parts is None or not parts.hostname or parts.port == 0 or " " in parts.netloc:
            return None
    except ValueError:  # such as a port above 65535
        return None
    return parts if parts.scheme in ("http", "https") else None


def check_proxy(proxy: object) -> None:
    """Check the URL of a proxy. The error does not show it, as it may contain a password.

    Raises:
        ConfigError: if it is not the URL of an HTTP proxy.
    """
    if proxy is not None and http_url(proxy) is None:
        raise ConfigError("proxy: must be the URL of an HTTP proxy, such as http://host:3128")


def check_ssl_context(context: object) -> None:
    """Raise ConfigError if ``context`` is not an ``ssl.SSLContext``."""
    if context is not None and not isinstance(context, ssl.SSLContext):
        raise ConfigError(f"ssl_context: must be an ssl.SSLContext, not {type(context).__name__}")


def check_header(name: str, value: object) -> None:
    """Check text for a header. The error does not show it, as it may be a secret.

    Raises:
        ConfigError: if it is not printable ASCII.
    """
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ConfigError(f"{name}: must be text of printable ASCII characters")


def new_session(max_connections: int = 1) -> aiohttp.ClientSession:
    """Return a session for :func:`exchange`, which sets the time limits. Credentials in files such
    as ``.netrc`` are not used.
    """
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(),
        connector=aiohttp.TCPConnector(limit=max_connections),
        trust_env=False,
    )


async def exchange(
    session: aiohttp.ClientSession, request: HttpRequest, options: HttpOptions
) -> HttpResponse | HttpFailure:
    """Send a request, and follow safe redirects.

    :func:`redirected` says which redirects are safe.
    """
    try:
        async with asyncio.timeout(options.timeout_ms / 1000):
            for _ in range(_MOST_REDIRECTS + 1):
                outcome, location = await _send(session, request, options)
                if isinstance(outcome, HttpFailure) or outcome.status not in _REDIRECTS:
                    return outcome
                target = redirected(request, outcome.status, location)
                if isinstance(target, HttpFailure):
                    return target
                request = replace(request, url=target)
            return HttpFailure(f"more than {_MOST_REDIRECTS} redirects", status=outcome.status)
    except TimeoutError:
        return HttpFailure(f"no response within request_timeout_ms={options.timeout_ms:g}")
    finally:
        del request


def redirected(request: HttpRequest, status: int, location: str | None) -> str | HttpFailure:
    """Return the target of a redirect, or a failure with advice if it must not be followed.

    The credentials of a request are for one host, and a POST must not become a GET. A redirect is
    safe to the same scheme, host and port, or from http to https at the default ports. Requests
    without credentials may be redirected to any host, but not from https to http.
    """
    address = _without_user(_joined(request.url, location or ""))
    shown = reason_of(address, request.secrets, _MOST_OF_URL)
    what = f"{status}: redirect to {shown}"
    if not location:
        return HttpFailure(f"{status}: redirect without a location", status=status)
    if request.method not in ("GET", "HEAD") and status not in _KEEP_METHOD:
        return HttpFailure(
            f"{what}: not followed, since a {request.method} would become a GET; use that address",
            status=status,
        )
    target = http_url(_joined(request.url, location))
    if target is None or target.username is not None:
        return HttpFailure(f"{what}: not followed, since that is not an HTTP URL", status=status)
    origin = urlsplit(request.url)
    if (origin.scheme, target.scheme) == ("https", "http"):
        return HttpFailure(
            f"{what}: not followed, since it leads from https to http", status=status
        )
    host = origin.hostname
    upgrade = (("http", host, 80), ("https", host, 443)) == (_place(origin), _place(target))
    has_credentials = "Authorization" in request.headers or request.secrets
    if has_credentials and not upgrade and _place(origin) != _place(target):
        return HttpFailure(
            f"{what}: not followed, since the credentials are for {origin.netloc}; "
            "if that host is meant, use its address",
            status=status,
        )
    return urlunsplit(target._replace(fragment=""))


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:  # such as brackets around a host that is not an IPv6 address
        return location


def _place(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80)


def _without_user(url: str) -> str:
    scheme, slashes, rest = url.partition("//")
    netloc, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{netloc.rpartition('@')[2]}{slash}{path}"


async def _send(
    session: aiohttp.ClientSession, request: HttpRequest, options: HttpOptions
) -> tuple[HttpResponse | HttpFailure, str | None]:
    """Send one request. Return the outcome, and the location of a redirect."""
    secrets = request.secrets
    proxy: _Proxy | None = None
    try:
        named = proxy_for(request.url) if options.proxy is None else options.proxy
    except ConfigError as error:
        return HttpFailure(str(error), sent=False, status=0), None
    if named is not None:
        proxy = _proxy_of(named, request.url.startswith("https:"))
        secrets = (*secrets, *secret_forms(unquote(urlsplit(named).password or "")))
    try:
        async with session.request(
            request.method,
            request.url,
            data=request.body,
            headers={**request.headers, **(proxy.in_request if proxy else {})},
            ssl=options.ssl_context if options.ssl_context is not None else True,
            allow_redirects=False,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy.to_proxy if proxy else None,
        ) as response:
            limit = options.max_bytes + 1
            content = b""
            while len(content) < limit and not response.content.at_eof():
                content += await response.content.read(limit - len(content))
            reason = reason_of(response.reason, secrets)
            location = response.headers.get("Location")
            return HttpResponse(response.status, reason, content), location
    except TimeoutError:
        raise  # of the time limit
    except aiohttp.ClientHttpProxyError as error:
        reason = reason_of(error.message, secrets)
        failure = HttpFailure(f"the proxy responded {error.status} {reason}", False, error.status)
    except aiohttp.ClientConnectorError as error:
        by = "" if proxy is None else "the proxy is "
        failure = HttpFailure(f"{by}unreachable: {reason_of(str(error), secrets)}", sent=False)
    except (aiohttp.ClientError, OSError) as error:
        failure = HttpFailure(f"{type(error).__name__}: {reason_of(str(error), secrets)}")
    except Exception as error:  # for malformed bytes; its text may contain secrets
        failure = HttpFailure(f"the request can't be made: {type(error).__name__}", status=0)
    finally:
        del request, named, proxy, secrets
    return failure, None


class _Proxy(NamedTuple):
    """A proxy, and the headers for it.

    Attributes:
        url: URL without user name and password.
        to_proxy: headers of the CONNECT request, for requests over TLS.
        in_request: headers of requests without TLS, which the proxy reads.
    """

    url: str
    to_proxy: dict[str, str]
    in_request: dict[str, str]


def _proxy_of(proxy: str, over_tls: bool) -> _Proxy:
    parts = urlsplit(proxy)
    login = {}
    if parts.username is not None:
        given = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        login["Proxy-Authorization"] = f"Basic {base64.b64encode(given).decode()}"
    url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return _Proxy(url, login, {}) if over_tls else _Proxy(url, {}, login)


def proxy_for(url: str) -> str | None:
    """Return the proxy for a URL: ``HTTPS_PROXY`` or ``HTTP_PROXY``, else ``ALL_PROXY``, unless
    ``NO_PROXY`` contains the host. Without these variables, macOS and Windows use the system's
    proxy.

    Raises:
        ConfigError: if it is not the URL of an HTTP proxy.
    """
    parts = urlsplit(url)
    named = getproxies()
    kind = parts.scheme if named.get(parts.scheme) else "all"
    proxy = named.get(kind)
    if not proxy or _is_excluded(parts, named.get("no") or ""):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"  # as curl reads host:port
    if http_url(proxy) is None:  # not shown, as it may contain a password
        raise ConfigError(
            f"{kind.upper()}_PROXY is not the URL of an HTTP proxy, such as http://host:3128; "
            "set the argument proxy, or NO_PROXY"
        )
    return proxy


def _is_excluded(url: SplitResult, no_proxy: str) -> bool:
    host = url.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    if proxy_bypass(shown) or proxy_bypass(f"{shown}:{_place(url)[2]}"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(_has(network.strip(), address) for network in no_proxy.split(","))


def _has(network: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(network.strip("[]"), strict=False)
    except ValueError:
        return False
