"""Drives a headless Chromium or Chrome by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
        """Take what the browser tells, until the connection ends."""
        async for message in self._socket:
            told = message.json()
            waiting = self._waiting.pop(told.get("id"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(told)
            if told.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(str(told["params"]))
            if told.get("method") == "Runtime.consoleAPICalled":
                self.complaints.append(str(told["params"]["args"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(_CALL_LIMIT_S):
            told = await waiting
        assert "error" not in told, f"{method}: {told['error']}"
        result: dict[str, Any] = told["result"]
        return result

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        told = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

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
        told = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(told["data"])


@asynccontextmanager
async def browser_page(browser: str, directory: Path, url: str) -> AsyncIterator[BrowserPage]:
    """Open a page in a new browser, which ends with the block."""
    process = await asyncio.create_subprocess_exec(
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
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        port = await _port(process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                target = next(each for each in await answer.json() if each["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = BrowserPage(socket)
                reading = {asyncio.create_task(work) for work in (page.read(), _drain(process))}
                try:
                    for domain in ("Page", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    await page.call("Page.navigate", url=url)
                    yield page
                finally:
                    for task in reading:
                        task.cancel()
                    await asyncio.wait(reading)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _port(process: asyncio.subprocess.Process) -> int:
    """Wait until the browser has told its port."""
    assert process.stderr is not None
    async with asyncio.timeout(_START_LIMIT_S):
        async for line in process.stderr:
            found = re.search(rb"DevTools listening on ws://127.0.0.1:(\d+)/", line)
            if found is not None:
                return int(found[1])
    raise AssertionError("the browser has ended")


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read what else the browser writes, which would wait otherwise."""
    assert process.stderr is not None
    while await process.stderr.read(4_096):
        pass
