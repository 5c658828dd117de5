"""Responses to probes over HTTP, such as those of Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Probed(NamedTuple):
    """The state that a probe reports.

    Attributes:
        ready: for readiness probes.
        healthy: for liveness probes.
        details: further members of the response.
    """

    ready: bool
    healthy: bool
    details: Mapping[str, str] = {}


def answer(path: str, probed: Probed) -> tuple[int, bytes]:
    """Return the HTTP status and the JSON text for a probe. A path that ends with ``/ready``
    queries ``ready``, all others ``healthy``.
    """
    good = probed.ready if path.rstrip("/").endswith("/ready") else probed.healthy
    body = {**probed.details, "ready": probed.ready, "healthy": probed.healthy}
    return (200 if good else 503), json.dumps(body).encode()


def asgi_app(probed: Callable[[], Probed]) -> AsgiApp:
    """Create an ASGI application that answers probes."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the health endpoint answers HTTP, not {scope['type']!r}")
        status, body = answer(scope["path"], probed())
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app
