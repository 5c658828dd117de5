"""Serves the page, its data, metrics, and responses to probes."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable
from importlib.resources import files
from types import TracebackType
from typing import Self

from aioprod.page_server import PageServer, Reply, Request
from aioprod.spark.page.history import ProgressHistory
from aioprod.spark.progress import QueryProgress
from aioprod.spark.signs import QuerySigns, stall_text

_NO_PROMETHEUS = 'metrics need prometheus_client: pip install "aioprod[prometheus]"'


class ProgressPage:
    """A live page of streaming queries on a port of this machine.

    ``/`` is the page, ``/data.json`` its data, ``/metrics`` the same for Prometheus (requires the
    extra ``prometheus``). ``/healthz`` responds with 200, or with 503 if the run has failed or a
    query is stalled. Use it as a context manager around the run: an exception in the block is shown
    as the failure of the run. At the end, open pages have two seconds to read the final state.

    Args:
        title: the name of the run on the page.
        host: the address to listen on; every host that can connect to it can read the page.
        port: the port; 0 chooses a free one.
        lag_limit: the lag above which the page shows a warning.
        signs: determines which queries are stalled; pass it to the `ProgressListener`, too.
        reason: a function that returns the text for an exception on the page.
    """

    def __init__(
        self,
        title: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        lag_limit: int | None = None,
        signs: QuerySigns | None = None,
        reason: Callable[[BaseException], str] = str,
    ) -> None:
        self._history = ProgressHistory(title, lag_limit=lag_limit, signs=signs)
        self._reason = reason
        self._page, self._policy = _load_page()
        routes = {
            "/": self._html,
            "/data.json": self._data,
            "/metrics": self._metrics,
            "/healthz": self._health,
        }
        self._server = PageServer(routes, host, port)

    @property
    def url(self) -> str:
        """The page's address; empty before the start."""
        return self._server.url

    def __enter__(self) -> Self:
        """Listen.

        Raises:
            PageError: if the address cannot be used.
        """
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self.fail(self._reason(error) or type(error).__name__)
        else:  # Ctrl-C is a usual end
            self.stop()
        self._server.close()

    def running(self, spark_ui: str | None = None) -> None:
        """Report that Spark is running and its queries start.

        Args:
            spark_ui: the address of Spark's UI, ``sparkContext.uiWebUrl``.
        """
        self._history.running(spark_ui)

    def add(self, progress: QueryProgress) -> None:
        """Add a micro-batch: a callback for `ProgressListener`."""
        self._history.add(progress)

    def stop(self) -> None:
        """Report that the run has ended without a failure."""
        self._history.end()

    def fail(self, reason: str) -> None:
        """Report that the run has failed, and why."""
        self._history.end(reason)

    def _html(self, request: Request) -> Reply:
        headers = {"Content-Security-Policy": self._policy, "Referrer-Policy": "no-referrer"}
        return Reply(self._page, "text/html; charset=utf-8", headers=headers)

    def _data(self, request: Request) -> Reply:
        after = request.query.get("after", "")
        document = self._history.document(
            request.query.get("run", ""), int(after) if after.isdecimal() else 0
        )
        return Reply(json.dumps(document, allow_nan=False).encode(), "application/json")

    def _metrics(self, request: Request) -> Reply:
        if importlib.util.find_spec("prometheus_client") is None:
            return Reply(f"{_NO_PROMETHEUS}\n".encode(), status=501)
        from aioprod.spark.page.metrics import scrape

        return Reply(*scrape(self._history, request.accept))

    def _health(self, request: Request) -> Reply:
        stalled = self._history.stalled()
        if stalled:
            lines = [stall_text(query, silent) for query, silent in sorted(stalled.items())]
            return Reply("\n".join(["stalled", *lines, ""]).encode(), status=503)
        state = self._history.state
        return Reply(f"{state}\n".encode(), status=503 if state == "failed" else 200)


def _load_page() -> tuple[bytes, str]:
    """Return the page, and a policy that allows only its own script and style, and only requests to
    this server.
    """
    text = (files("aioprod.spark.page") / "page.html").read_text(encoding="utf-8")
    script, style = (_digest(text, tag) for tag in ("script", "style"))
    return text.encode(), (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _digest(text: str, tag: str) -> str:
    (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
