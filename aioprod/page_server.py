"""A small HTTP server for a few read-only documents, in threads."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aioprod.logs import Logger, get_logger

log: Logger = get_logger(__name__)

_REQUEST_LIMIT_S = 5.0
_READERS_LIMIT_S = 2.0
_LAST_ANSWERS_LIMIT_S = 1.0
_MAX_CONNECTIONS = 64
# This number of further connections get an error response; the others are closed.
_MAX_REFUSALS = 16
_MAX_READERS = 100
_READER_AGE_S = 5.0
_POLL_S = 0.05


class PageError(Exception):
    """The page can't be served. The message contains the reason and what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a document.

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
        body: the body.
        content_type: the content type, with the charset if it is text.
        status: the HTTP status.
        headers: additional headers.
    """

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Request], Reply]


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``PORT``, ``HOST:PORT`` or ``[::1]:PORT``. The host is 127.0.0.1 by default, and port 0
    means any free port.

    Raises:
        ValueError: if the text has another form.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal()) or int(port) > 65_535 or text.startswith(":"):
        raise ValueError(f"must be PORT or HOST:PORT with a port from 0 to 65535, not {text!r}")
    return host or "127.0.0.1", int(port)


class PageServer:
    """Responds to GET and HEAD requests from a table of paths; closes each connection after its
    response.

    A server on a loopback address accepts only requests to a loopback name: otherwise a page of
    another site could read it through a name that resolves to 127.0.0.1.
    """

    def __init__(self, routes: Mapping[str, Route], host: str, port: int) -> None:
        self._routes = routes
        self._host, self._port = host, port
        self._only_loopback = _is_loopback(host)
        self._readers: OrderedDict[str, float] = OrderedDict()
        self._server: _Server | None = None
        self.url: str = ""

    def start(self) -> None:
        """Listen, and set `url`.

        Raises:
            PageError: if the address cannot be used.
        """
        try:
            self._server = server = _Server(self._host, self._port, self._reply)
        except OSError as failure:
            raise PageError(
                f"can't listen on {self._host}:{self._port} "
                f"({failure.strerror or failure}): choose another address, or port 0 for a free one"
            ) from failure
        self.url = _url(self._host, server.socket)
        threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name="aioprod-page", daemon=True
        ).start()

    def close(self) -> None:
        """Wait, at most two seconds, until open pages have read the current state, and stop."""
        server, self._server = self._server, None
        if server is None:
            return
        self._wait_for_readers()
        server.shutdown()
        server.server_close()
        deadline = time.monotonic() + _LAST_ANSWERS_LIMIT_S
        while server.connections and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        server.close_connections(began_before=time.monotonic())

    def _wait_for_readers(self) -> None:
        ended = time.monotonic()
        while time.monotonic() - ended < _READERS_LIMIT_S:
            seen_at = list(self._readers.values())
            if all(not ended - _READER_AGE_S < seen < ended for seen in seen_at):
                return
            time.sleep(_POLL_S)

    def _reply(self, target: str, host: str, accept: str) -> Reply:
        if self._only_loopback and not _is_loopback(_host_of(host)):
            return _text(403, "only requests to 127.0.0.1 or localhost are answered")
        parts = urlsplit(target)
        route = self._routes.get(parts.path)
        if route is None:
            return _text(404, f"only {', '.join(self._routes)}")
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if "reader" in query:
            self._seen(query["reader"])
        try:
            return route(Request(query, accept))
        except Exception:
            log.exception("the response for %s failed", parts.path)
            return _text(500, "the program's log says why")

    def _seen(self, reader: str) -> None:
        """Record when an open page has sent a request, so that `close` waits for it."""
        with contextlib.suppress(KeyError):  # another thread has removed it
            self._readers[reader] = time.monotonic()
            self._readers.move_to_end(reader)
            if len(self._readers) > _MAX_READERS:
                self._readers.popitem(last=False)


class _Server(ThreadingHTTPServer):
    """Limits how many connections are open, and how long each."""

    daemon_threads = True

    def __init__(self, host: str, port: int, reply: Callable[[str, str, str], Reply]) -> None:
        self.reply = reply
        self.connections: dict[socket.socket, float] = {}
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # unlike HTTPServer, without a lookup of the host's full name

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self.connections) >= _MAX_CONNECTIONS + _MAX_REFUSALS:
            self.shutdown_request(request)
            return
        self.connections[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        self.close_connections(began_before=time.monotonic() - _REQUEST_LIMIT_S)

    def close_connections(self, *, began_before: float) -> None:
        """Close connections; their threads then end."""
        for connection, began in list(self.connections.items()):
            if began < began_before:
                with contextlib.suppress(OSError):  # it has just ended
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_LIMIT_S
    server_version, sys_version = "aioprod", ""

    def do_GET(self) -> None:
        self._send(self._reply())

    def do_HEAD(self) -> None:
        self._send(self._reply(), body=False)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Respond to requests that http.server refuses: other methods, and data that is not
        HTTP.
        """
        if code == 501:
            self._send(_text(405, "only GET and HEAD", Allow="GET, HEAD"))
        else:
            self._send(_text(code, message or "not a request of HTTP/1"))

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: http.server would print each request."""

    def _reply(self) -> Reply:
        if len(self.server.connections) > _MAX_CONNECTIONS:
            return _text(503, f"more than {_MAX_CONNECTIONS} connections")
        headers = self.headers
        return self.server.reply(self.path, headers.get("Host", ""), headers.get("Accept", ""))

    def _send(self, reply: Reply, *, body: bool = True) -> None:
        self.send_response(reply.status)
        headers = {
            "Content-Type": reply.content_type,
            "Content-Length": str(len(reply.body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
            **reply.headers,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(reply.body)


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
