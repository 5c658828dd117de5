"""A small HTTP server for a few read-only documents, on an event loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from aioprod.logs import get_logger

log = get_logger(__name__)

_REQUEST_LIMIT_S = 5.0
_START_LIMIT_S = 10.0
_READERS_LIMIT_S = 2.0
_LAST_ANSWERS_LIMIT_S = 1.0
_MAX_HEAD_BYTES = 16 << 10
_MAX_CONNECTIONS = 64
_MAX_READERS = 100
_READER_AGE_S = 5.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class PageError(Exception):
    """The page cannot be served; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a document is made from.

    Attributes:
        query: the parameters after ``?``, the last value of each.
        accept: the header ``Accept``.
    """

    query: Mapping[str, str]
    accept: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A response.

    Attributes:
        body: its bytes.
        content_type: with the charset, if it is text.
        status: HTTP's status.
        headers: further headers.
    """

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Request], Reply]


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``PORT``, ``HOST:PORT`` or ``[::1]:PORT``; the host is 127.0.0.1 by default, and port 0
    any free one.

    Raises:
        ValueError: if the text has another form.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal()) or int(port) > 65_535 or text.startswith(":"):
        raise ValueError(f"must be PORT or HOST:PORT with a port from 0 to 65535, not {text!r}")
    return host or "127.0.0.1", int(port)


class PageServer:
    """Answers GET and HEAD from a table of paths; closes each connection after its response.

    A server on a loopback address answers only requests to a loopback name: a page of another site
    could otherwise read it by a name that resolves to 127.0.0.1.
    """

    def __init__(self, routes: Mapping[str, Route], host: str, port: int) -> None:
        self._routes = routes
        self._host, self._port = host, port
        self._only_loopback = _is_loopback(host)
        self._answering: set[asyncio.Task[object]] = set()
        self._readers: OrderedDict[str, float] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._main, name="aioprod-page", daemon=True)
        self.url = ""

    def start(self) -> None:
        """Listen; `url` is the address then.

        Raises:
            PageError: if the address cannot be used.
        """
        self._thread.start()
        if not self._started.wait(_START_LIMIT_S):
            raise PageError(f"the page's server did not start within {_START_LIMIT_S:.0f} s")
        if self._failure is not None:
            failure = self._failure
            raise PageError(
                f"the page can't listen on {self._host}:{self._port} "
                f"({failure.strerror or failure}): choose another address, or port 0 for a free one"
            ) from failure

    def close(self) -> None:
        """Wait, at most two seconds, until the pages that are open have read the current state, and
        end.
        """
        loop, closing = self._loop, self._closing
        if loop is None or closing is None or not self._thread.is_alive():
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(closing.set)
        self._thread.join(_READERS_LIMIT_S + _LAST_ANSWERS_LIMIT_S + 1.0)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failure = error
        except Exception:
            log.exception("the page's server has ended; the pipeline continues without it")
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(
            self._connected, self._host, self._port, limit=_MAX_HEAD_BYTES
        )
        try:
            self.url = _url(self._host, server.sockets[0])
            self._started.set()
            await self._closing.wait()
            await self._wait_for_readers()
        finally:
            server.close()
            if self._answering:
                await asyncio.wait(self._answering, timeout=_LAST_ANSWERS_LIMIT_S)

    async def _wait_for_readers(self) -> None:
        ended = time.monotonic()
        while time.monotonic() - ended < _READERS_LIMIT_S:
            if all(not ended - _READER_AGE_S < seen < ended for seen in self._readers.values()):
                return
            await asyncio.sleep(0.05)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            async with asyncio.timeout(_REQUEST_LIMIT_S):
                await self._answer(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ValueError):
            pass  # the other side has gone, is too slow, or does not speak HTTP
        finally:
            self._answering.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._answering) > _MAX_CONNECTIONS:
            reply, method = _text(503, f"more than {_MAX_CONNECTIONS} connections"), "GET"
        else:
            head = await reader.readuntil(b"\r\n\r\n")
            reply, method = self._reply(head.decode("latin-1"))
        lines = [
            f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}",
            f"Content-Type: {reply.content_type}",
            f"Content-Length: {len(reply.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            *(f"{name}: {value}" for name, value in reply.headers.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if method != "HEAD":
            writer.write(reply.body)
        await writer.drain()
        writer.write_eof()

    def _reply(self, head: str) -> tuple[Reply, str]:
        request_line, *lines = head.split("\r\n")
        method, _, rest = request_line.partition(" ")
        target, _, protocol = rest.partition(" ")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        if not protocol.startswith("HTTP/1."):
            return _text(400, "not a request of HTTP/1"), method
        if method not in ("GET", "HEAD"):
            return _text(405, "only GET and HEAD", Allow="GET, HEAD"), method
        if self._only_loopback and not _is_loopback(_host_of(headers.get("host", ""))):
            return _text(403, "only requests to 127.0.0.1 or localhost are answered"), method
        parts = urlsplit(target)
        route = self._routes.get(parts.path)
        if route is None:
            return _text(404, f"only {', '.join(self._routes)}"), method
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if "reader" in query:
            self._seen(query["reader"])
        try:
            return route(Request(query, headers.get("accept", ""))), method
        except Exception:
            log.exception("%s of the page failed", parts.path)
            return _text(500, "the pipeline's log says why"), method

    def _seen(self, reader: str) -> None:
        """Remember when an open page has asked, so that `close` waits for it."""
        self._readers[reader] = time.monotonic()
        self._readers.move_to_end(reader)
        if len(self._readers) > _MAX_READERS:
            self._readers.popitem(last=False)


def _text(status: int, text: str, **headers: str) -> Reply:
    return Reply(f"{text}\n".encode(), status=status, headers=headers)


def _url(host: str, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _host_of(header: str) -> str:
    """Return the name in a ``Host`` header, without the port."""
    with contextlib.suppress(ValueError):
        return urlsplit(f"//{header}").hostname or ""
    return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
