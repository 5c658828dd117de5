"""The state of a processor for probes, and endpoints that report it over HTTP."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from enum import StrEnum
from typing import Any, NamedTuple

from aioprod.public_module import set_module

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


@set_module("aioprod.processing")
class ProcessorStatus(StrEnum):
    """What a processor is doing."""

    NEW = "new"
    """Not started."""
    STARTING = "starting"
    """Connecting, or waiting for its first partitions."""
    RUNNING = "running"
    """Handling records."""
    FAILING = "failing"
    """Its consumer or its group fails; it retries."""
    STALLED = "stalled"
    """A partition with records to read makes no progress; ``error`` says why."""
    STOPPING = "stopping"
    """Waiting for the handlers that run."""
    STOPPED = "stopped"
    """It has ended."""


@set_module("aioprod.processing")
class ProcessorState(NamedTuple):
    """A processor's state at one moment.

    Attributes:
        status: what it is doing.
        ready: whether it handles records, for readiness probes.
        healthy: whether a restart would not help, for liveness probes.
        error: why it fails, or has ended; else None.
    """

    status: ProcessorStatus
    ready: bool
    healthy: bool
    error: BaseException | None = None


def answer(path: str, state: ProcessorState) -> tuple[int, bytes]:
    """Return the HTTP status and the JSON text for a probe: a path that ends with ``/ready`` asks
    for ``ready``, all others for ``healthy``.
    """
    good = state.ready if path.rstrip("/").endswith("/ready") else state.healthy
    body: dict[str, Any] = {
        "status": str(state.status),
        "ready": state.ready,
        "healthy": state.healthy,
    }
    if state.error is not None:
        # The text of an error may show data of a record; that of a stall names places only.
        stalled = state.status is ProcessorStatus.STALLED
        body["error"] = str(state.error) if stalled else type(state.error).__name__
    return (200 if good else 503), json.dumps(body).encode()


def asgi_app(state: Callable[[], ProcessorState]) -> AsgiApp:
    """Make an ASGI application that answers probes."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the health endpoint answers HTTP, not {scope['type']!r}")
        status, body = answer(scope["path"], state())
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app
