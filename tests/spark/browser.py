"""Drives a headless Chromium or Chrome by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PLACES = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",)
_CALL_LIMIT_S = 20.0
_START_LIMIT_S = 60.0


def find_browser() -> str | None:
    """Return the path of a browser, None if the machine has none."""
    found = (shutil.which(name) for name in _NAMES)
    return next((path for path in (*found, *_PLACES) if path and Path(path).exists()), None)


class BrowserPage:
    """A page of the browser. ``complaints`` has what is in its console, uncaught errors, too."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []

    async def read(self) -> None:
        """Take what the browser shows, until the connection ends."""
        async for message in self._socket:
            reported = message.json()
            waiting = self._waiting.pop(reported.get("id"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(reported)
            if reported.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(str(reported["params"]))
            if reported.get("method") == "Runtime.consoleAPICalled":
                self.complaints.append(str(reported["params"]["args"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(_CALL_LIMIT_S):
            reported = await waiting
        assert "error" not in reported, f"{method}: {reported['error']}"
        result: dict[str, Any] = reported["result"]
        return result

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        reported = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reported, reported
        return reported["result"].get("value")

    async def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        await self.evaluate(
            "new Promise((done) => { const timer = setInterval(() => {"
            f"if ({condition}) {{ clearInterval(timer); done(); }} }}, 20); }})"
        )

    async def look(self, *, width: int, height: int, dark: bool) -> None:
        """Choose the size of the window and the color scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self) -> bytes:
        """Return the whole page as PNG."""
        reported = await self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True
        )
        return base64.b64decode(reported["data"])


@contextmanager
def running_browser(browser: str, directory: Path) -> Iterator[int]:
    """Run a browser, and yield its DevTools port."""
    command = [
        browser,
        "--headless=new",
        "--remote-debugging-port=0",
        f"--user-data-dir={directory}",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--no-proxy-server",
        "--no-sandbox",  # which root, containers and some CI machines do not have; the page is ours
        "about:blank",
    ]
    unheard = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=unheard, stdout=unheard, stderr=unheard) as process:
        try:
            yield _port(process, directory / "DevToolsActivePort")
        finally:
            process.kill()


def _port(process: subprocess.Popen[bytes], reported: Path) -> int:
    """Wait until the browser has written its port."""
    until = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < until:
        assert process.poll() is None, "the browser has ended"
        if reported.exists() and (lines := reported.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.02)
    raise TimeoutError(f"the browser has not reported its port within {_START_LIMIT_S} s")


@asynccontextmanager
async def browser_page(port: int, url: str) -> AsyncIterator[BrowserPage]:
    """Open a page in a new tab of a running browser, which is closed with the block."""
    address = f"http://127.0.0.1:{port}/json"
    async with aiohttp.ClientSession() as session:
        async with session.put(f"{address}/new?about:blank") as answer:
            target = await answer.json()
        try:
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = BrowserPage(socket)
                reading = asyncio.create_task(page.read())
                try:
                    for domain in ("Page", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    await page.call("Page.navigate", url=url)
                    yield page
                finally:
                    reading.cancel()
                    await asyncio.wait([reading])
        finally:
            async with session.get(f"{address}/close/{target['id']}"):
                pass
