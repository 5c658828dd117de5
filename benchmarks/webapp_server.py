"""A web application that sends a record for each request and awaits it, for ``benchmarks.webapp``.

It prints its port and versions, and then responds to each line on standard input with a line: CPU
seconds, and the numbers of requests that it has begun and finished. It ends with its input, and
prints such a line when no request can follow.
"""

# FastAPI evaluates annotations, so they must not be strings.

import argparse
import asyncio
import importlib.metadata
import importlib.util
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvloop

from benchmarks.adapters import ADAPTERS, Settings, started

NO_KAFKA = "no Kafka"
WAITING = "waiting 1 ms"
FRAMEWORKS = ("fastapi", "aiohttp")
PATH = "/orders"
_VERSIONS = {
    "fastapi": ("fastapi", "starlette", "uvicorn", "httptools"),
    "aiohttp": ("aiohttp",),
}
_STOP_TIMEOUT_S = 5
_WAIT_S = 0.001

Handle = Callable[[bytes], Awaitable[None]]


class Application:
    """The work of a request.

    Attributes:
        begun: the number of requests.
        finished: the number of requests whose records are acknowledged.
    """

    def __init__(self, send: Handle | None) -> None:
        self.begun = self.finished = 0
        self._send = send

    async def handle(self, body: bytes) -> None:
        """Send a request's body."""
        self.begun += 1
        if self._send is not None:
            await self._send(body)
        self.finished += 1

    def report(self) -> None:
        """Print the line of numbers."""
        print(time.process_time(), self.begun, self.finished, sep="\t", flush=True)


class Waiting:
    """Awaits what no client can do without: the requests of a millisecond are resumed together, by
    their futures.
    """

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def handle(self, body: bytes) -> None:
        """Wait for the end of the millisecond that began with the first waiting request."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(_WAIT_S, self._resume)
        future = loop.create_future()
        self._waiting.append(future)
        await future

    def _resume(self) -> None:
        resumed, self._waiting = self._waiting, []
        for each in resumed:
            if not each.done():
                each.set_result(None)


@asynccontextmanager
async def fastapi_server(handle: Handle, listening: socket.socket) -> AsyncIterator[None]:
    """Serve with FastAPI on uvicorn until the block ends."""
    import uvicorn
    from fastapi import FastAPI, Request

    app = FastAPI()

    @app.post(PATH)
    async def order(request: Request) -> dict[str, Any]:
        await handle(await request.body())
        return {"accepted": True}

    config = uvicorn.Config(app, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait([serving], timeout=_STOP_TIMEOUT_S)


@asynccontextmanager
async def aiohttp_server(handle: Handle, listening: socket.socket) -> AsyncIterator[None]:
    """Serve with aiohttp until the block ends."""
    from aiohttp import web

    async def order(request: web.Request) -> web.Response:
        await handle(await request.read())
        return web.json_response({"accepted": True})

    app = web.Application()
    app.router.add_post(PATH, order)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_TIMEOUT_S)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        yield
    finally:
        await runner.cleanup()


SERVERS = {"fastapi": fastapi_server, "aiohttp": aiohttp_server}


def versions(framework: str) -> str:
    """Return the versions of the event loop, the framework and the server."""
    found = []
    for package in ("uvloop", *_VERSIONS[framework]):
        if importlib.util.find_spec(package) is None:
            found.append(f"without {package}")
        else:
            found.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join(found)


def respond(application: Application, ended: Callable[[], object]) -> None:
    """Respond to each line on standard input, and call ``ended`` when it ends."""
    for _ in sys.stdin:
        application.report()
    ended()


async def serve(framework: str, client: str, settings: Settings, topic: str) -> None:
    """Serve until standard input ends."""
    async with AsyncExitStack() as stack:
        send: Handle | None = None
        if client == WAITING:
            send = Waiting().handle
        elif client != NO_KAFKA:
            adapter = await stack.enter_async_context(started(ADAPTERS[client](), settings))

            async def send_body(body: bytes) -> None:
                await adapter.send_and_wait(topic, body, None)

            send = send_body
        application = Application(send)
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        await stack.enter_async_context(SERVERS[framework](application.handle, listening))
        print(listening.getsockname()[1], versions(framework), sep="\t", flush=True)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        threading.Thread(
            target=respond,
            args=(application, lambda: loop.call_soon_threadsafe(ended.set)),
            daemon=True,
        ).start()
        await ended.wait()
    application.report()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("client", choices=[NO_KAFKA, WAITING, *ADAPTERS])
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("--linger-ms", type=float, default=0.0)
    chosen = parser.parse_args()
    settings = Settings(chosen.servers, linger_ms=chosen.linger_ms)
    uvloop.run(serve(chosen.framework, chosen.client, settings, chosen.topic))


if __name__ == "__main__":
    main()
