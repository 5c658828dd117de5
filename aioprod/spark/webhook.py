"""Sends alerts to a web address, without delaying the caller."""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from aioprod.logs import Logger, get_logger

log: Logger = get_logger(__name__)

_MAX_WAITING = 100
_REQUEST_LIMIT_S = 5.0
_PAUSES_S = (1.0, 3.0)
"""The pause between the three attempts."""

_CLOSE_LIMIT_S = 10.0
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: urllib would follow them with a GET, without the alert."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhook:
    """POSTs documents as JSON to ``http://`` or ``https://`` addresses, in order, in a thread.

    Each has three attempts of at most 5 seconds. If all fail, the document is logged as lost and
    dropped; so is a document if 100 others are waiting. Logs contain only the host, because the
    rest of such an address is often secret.
    """

    def __init__(
        self,
        url: str,
        *,
        request_limit_s: float = _REQUEST_LIMIT_S,
        pauses_s: Sequence[float] = _PAUSES_S,
    ) -> None:
        """Start the thread.

        Raises:
            ValueError: if ``url`` is not an HTTP or HTTPS URL.
        """
        check_url(url)
        self._url = url
        self._host = urlsplit(url).hostname
        self._request_limit_s = request_limit_s
        self._pauses_s = pauses_s
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(_MAX_WAITING)
        self._closing = threading.Event()
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._thread = threading.Thread(target=self._main, name="aioprod-webhook", daemon=True)
        self._thread.start()

    def send(self, document: Mapping[str, Any]) -> None:
        """Queue a document for sending."""
        try:
            self._waiting.put_nowait(document)
        except queue.Full:
            log.error("webhook %s: %s alerts wait already; one is lost", self._host, _MAX_WAITING)

    def close(self, limit_s: float = _CLOSE_LIMIT_S) -> None:
        """Send the waiting documents, and end the thread. Documents that can't be sent within
        ``limit_s`` seconds are lost, which is logged.
        """
        deadline = time.monotonic() + limit_s
        try:
            self._waiting.put(None, timeout=limit_s)
            self._thread.join(max(0.0, deadline - time.monotonic()))
        except queue.Full:
            pass
        if self._thread.is_alive():
            log.error("webhook %s: alerts are lost, it took more than %g s", self._host, limit_s)
        self._closing.set()

    def _main(self) -> None:
        while not self._closing.is_set():
            document = self._waiting.get()
            if document is None:
                return
            failure = self._deliver(json.dumps(document).encode())
            if failure is not None:
                log.error("webhook %s: an alert is lost: %s", self._host, failure)

    def _deliver(self, body: bytes) -> str | None:
        """Return why the document could not be delivered, or None if it was."""
        failure: str | None = None
        for pause in (*self._pauses_s, None):
            failure, again = self._post(body)
            if failure is None or not again or pause is None or self._closing.wait(pause):
                break
        return failure

    def _post(self, body: bytes) -> tuple[str | None, bool]:
        """Return the error, or None if there is none, and whether another attempt may succeed."""
        request = urllib.request.Request(
            self._url, body, {"Content-Type": "application/json"}, method="POST"
        )
        try:
            with self._opener.open(request, timeout=self._request_limit_s):
                return None, False
        except urllib.error.HTTPError as error:
            error.close()
            return f"status {error.code}", error.code in _TRY_AGAIN
        except urllib.error.URLError as error:
            return str(error.reason), True
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}", True


def check_url(url: str) -> str:
    """Return the address if it is an HTTP or HTTPS URL.

    Raises:
        ValueError: if it is not. The message does not contain the address, which may be secret.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(character <= " " for character in url):
        raise ValueError("must be an address http://HOST... or https://HOST...")
    return url
