"""The services of clouds that give tokens, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

ACCOUNT = "orders@project.iam.gserviceaccount.com"


@dataclass
class Clouds:
    """Metadata services of machines, and token endpoints.

    Attributes:
        address: host and port, once it runs.
        lifetime_s: lifetime of the tokens.
        requests: method, path with query, and headers of each request.
        forms: forms of the requests that have one.
        gate: awaited by requests.
        status: status code of the responses.
    """

    address: str = ""
    lifetime_s: int = 3600
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    status: int = 200
    waiting: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Clouds]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.address = f"{host}:{port}"
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path_qs, dict(request.headers)))
        if request.method == "POST":
            form = await request.post()
            self.forms.append({name: str(value) for name, value in form.items()})
        if self.gate is not None:
            self.waiting.set()
            await self.gate.wait()
        if self.status != 200:
            return web.json_response({"error": "invalid_grant"}, status=self.status)
        number = sum("oken" in path or "/container" in path for _, path, _ in self.requests)
        headers = {"Metadata-Flavor": "Google"}
        return web.json_response(self._document(request.path, number), headers=headers)

    def _document(self, path: str, number: int) -> object:
        if path == "/container":  # of ECS and EKS: credentials, not a token
            expires = time.gmtime(time.time() + self.lifetime_s)
            return {
                "AccessKeyId": f"AKID{number}",
                "SecretAccessKey": "s3cret",
                "Token": "session-token",
                "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", expires),
            }
        if path.endswith("/service-accounts/default/"):
            return {"email": ACCOUNT, "scopes": [], "aliases": ["default"]}
        return {
            "resource": "what was asked for",  # Azure
            "access_token": f"access-{number}",
            "expires_in": self.lifetime_s,
            "expires_on": int(time.time()) + self.lifetime_s,
            "token_type": "Bearer",
        }
