"""The embedded registry: its API over HTTP, faults, and the requests that it received."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from aioprod.errors import ConfigError
from aioprod.misuse import names_cures
from aioprod.public_module import Uncopyable, set_module
from aioprod.running_loop import running_loop
from aioprod.testing.registry.routes import ROUTES, Call
from aioprod.testing.registry.store import Refusal, RegistryStore

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@set_module("aioprod.testing.registry")
@dataclass(frozen=True, slots=True)
class SeenCall:
    """A request that the embedded registry received.

    Attributes:
        method, path: method and decoded path of the request.
    """

    method: str
    path: str


@names_cures()
@set_module("aioprod.testing.registry")
class EmbeddedSchemaRegistry(Uncopyable):
    """An in-memory Schema Registry on 127.0.0.1 in the test process, with version 1 of Confluent's
    API. Use it as ``async with EmbeddedSchemaRegistry() as registry:`` and pass ``registry.url`` to
    any client.

    It supports subjects, versions, ids, GUIDs, references, contexts, soft and permanent deletes,
    modes, and compatibility levels with Avro's rules. Schemas of the other types are compatible
    with any of their own type. Protobuf schemas are returned in the form in which they were
    registered.

    Args:
        basic_auth: the user name and password that requests must have.
        bearer_token: a token that requests must have.
        ssl_context: if given, the registry serves HTTPS.

    Attributes:
        url: its URL, once it is started.
        calls: the requests so far.
        delay_s: the delay of each response.
    """

    def __init__(
        self,
        *,
        basic_auth: tuple[str, str] | None = None,
        bearer_token: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.url: str = ""
        self.calls: list[SeenCall] = []
        self.delay_s: float = 0.0
        self._store = RegistryStore()
        self._ssl = ssl_context
        self._wanted: str | None = None
        if basic_auth is not None:
            encoded = base64.b64encode(":".join(basic_auth).encode()).decode()
            self._wanted = f"Basic {encoded}"
        elif bearer_token is not None:
            self._wanted = f"Bearer {bearer_token}"
        self._failures: list[tuple[int, int, str]] = []
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        """Start on a free port."""
        running_loop()
        app = web.Application()
        for method, path, answer in ROUTES:
            app.router.add_route(method, path, self._handler(answer))
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._ssl)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._ssl else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop."""
        assert self._runner is not None
        await self._runner.cleanup()

    # -- for tests ---------------------------------------------------------------------------------

    def fail(self, status: int = 503, *, times: int = 1, code: int = 0, message: str = "") -> None:
        """Make the next ``times`` requests fail with an HTTP status; 0 closes the connection.

        Raises:
            ConfigError: if ``times`` is below 1.
        """
        if times < 1:
            raise ConfigError(f"times={times}: must be at least 1")
        self._failures += [
            (status, code or status * 100 + 1, message or "failed by the test")
        ] * times

    def schemas(self, subject: str) -> list[str]:
        """Return the texts of a subject's schemas, oldest first; empty if it does not exist."""
        if subject not in self._store.subjects(subject, deleted=False):
            return []
        return [each.content.text for each in self._store.versions(subject)]

    def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        return self._store.subjects("", deleted=False)

    # -- requests ----------------------------------------------------------------------------------

    def _handler(
        self, answer: Callable[[Call], Any]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.calls.append(SeenCall(request.method, request.path))
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            try:
                self._check(request)
                text = await request.text()
                body = json.loads(text) if text else {}
                return _json(200, answer(Call(self._store, request, body)))
            except Refusal as refusal:
                return _error(refusal.status, refusal.code, refusal.message)
            except (ValueError, TypeError):
                return _error(400, 400, "the request is not valid JSON")

        return handle

    def _check(self, request: web.Request) -> None:
        if self._failures:
            status, code, message = self._failures.pop(0)
            if not status:
                assert request.transport is not None
                request.transport.abort()
            raise _Failure(status or 503, code, message)
        given = request.headers.get("Authorization", "")
        if self._wanted is not None and not hmac.compare_digest(given, self._wanted):
            raise Refusal(40101, "Unauthorized")


class _Failure(Refusal):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(code, message)
        self._status = status

    @property
    def status(self) -> int:
        return self._status


def _json(status: int, content: Any) -> web.Response:
    return web.Response(
        status=status, body=json.dumps(content).encode(), headers={"Content-Type": _CONTENT_TYPE}
    )


def _error(status: int, code: int, message: str) -> web.Response:
    return _json(status, {"error_code": code, "message": message})
