"""The page in a headless browser: what it shows while a run starts, works, fails, stops, or cannot
be reached.

Runs if Chromium or Chrome is installed (`.ci/run` installs one if it can). With
``AIOPROD_SCREENSHOTS=DIRECTORY`` the pictures are kept there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from aioprod.spark.page import ProgressPage
from aioprod.spark.page.tasks import QueryTasks

from .browser import BrowserPage, browser_page, find_browser, running_browser
from .page_progress import NUMBERS, REJECTED, batch, rejected, sample, signs_of

BROWSER = find_browser()
HOSTILE = "<img src=x onerror=alert(1)>&amp;\"'</script>"

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="neither Chromium nor Chrome is installed"),
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a browser for all tests: to start one takes seconds."""
    assert BROWSER is not None
    with running_browser(BROWSER, tmp_path_factory.mktemp("profile")) as found:
        yield found


@asynccontextmanager
async def opened(page: ProgressPage, port: int) -> AsyncIterator[BrowserPage]:
    """Open the page, and check that the browser has nothing to complain about in the end."""
    async with browser_page(port, page.url) as browser:
        await browser.look(width=1_300, height=900, dark=False)
        yield browser
        # A server that has gone is not an error of the page.
        assert [text for text in browser.complaints if "ERR_CONNECTION_REFUSED" not in text] == []
    page._server._readers.clear()  # it would wait for the tab, which is closed


def text_of(selector: str) -> str:
    return f"document.querySelector({selector!r}).textContent"


async def shows(browser: BrowserPage, state: str) -> None:
    await browser.wait_for(f"{text_of('#state')} === {state!r}")


async def save(browser: BrowserPage, name: str) -> tuple[int, int]:
    """Return width and height of a screenshot; keep it if asked."""
    picture = await browser.screenshot()
    directory = os.environ.get("AIOPROD_SCREENSHOTS")
    if directory:
        (Path(directory) / f"{name}.png").write_bytes(picture)
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def feed(page: ProgressPage, count: int = 30, first: int = 0) -> None:
    for number in range(first, first + count):
        lag = 40_000 // (number + 1)
        lags = {"flights": {"0": lag // 4, "1": lag - lag // 4}}
        page.add(batch(number, lag=lag, lag_by_partition=lags, rows_per_second=1_000.0 + number))
        letters = [sample("not JSON", number, "<event>"), sample("item missing", number, "{}" * 90)]
        page.add(rejected(number, number % 2, letters, lag=0, batch_ms=300 + number, late_rows=0))


async def card(browser: BrowserPage, query: str) -> dict[str, str]:
    """The numbers of a query's card."""
    found: dict[str, str] = await browser.evaluate(
        "Object.fromEntries([...[...document.querySelectorAll('.card')].find((card) => "
        f"card.querySelector('h2').textContent === {query!r}).querySelectorAll('dl > div')]"
        ".map((each) => [...each.children].map((child) => child.textContent)))"
    )
    return found


async def test_numbers_appear_as_they_are_reported(port: int) -> None:
    with ProgressPage("pipeline of flights", lag_limit=100) as page:
        async with opened(page, port) as browser:
            await shows(browser, "starting Spark")
            await save(browser, "starting")
            feed(page)
            await shows(browser, "running")
            await browser.wait_for("document.querySelectorAll('figure').length >= 9")
            assert await card(browser, NUMBERS) == {
                "rows/s": "1,029",
                "lag": "1,333 (above the limit)",
                "last batch": "1.3 s",
                "rows in all": "30,000",
                "dropped as late": "60",
                "state rows": "7",
                "state memory": "4.1 kB",
            }
            assert (await card(browser, REJECTED))["dead letters"] == "15"
            titles = await browser.evaluate(
                "[...document.querySelectorAll('figure h2')].map((each) => each.textContent)"
            )
            assert titles == [
                "Rows/s",
                "Lag (records)",
                "Batch time",
                f"Batch time by phase: {REJECTED}",
                f"Batch time by phase: {NUMBERS}",
                f"Lag by partition: {REJECTED}",
                f"Lag by partition: {NUMBERS}",
                f"Dead letters by reason: {REJECTED}",
                "State (rows)",
                "State (memory)",
                "Dead letters",
                "Dropped as late",
            ]
            lags = "[...document.querySelectorAll('figure')][6].innerText"
            assert (await browser.evaluate(lags)).split()[-6:] == [
                *("flights", "0", "333"),
                *("flights", "1", "1,000"),
            ]
            page.add(batch(30, rows_per_second=5_000.0))
            await browser.wait_for("document.body.textContent.includes('5,000')")
            assert (await card(browser, NUMBERS))["rows in all"] == "31,000"


async def test_one_slow_batch_does_not_hide_the_others(port: int) -> None:
    with ProgressPage("pipeline of flights") as page:
        page.running("http://127.0.0.1:4040/")
        page.add(batch(0, batch_ms=60_000, watermark_delay_s=5.0, event_age_s=2.0, lag=0))
        for number in range(400, 430):
            page.add(batch(number, batch_ms=100 + number, watermark_delay_s=5.0, lag=0))
        async with opened(page, port) as browser:
            # In the drawing's units: how far the last batch is from the bottom.
            height = "156 - Number([...document.querySelectorAll('figure')].find((each) => "
            height += "each.querySelector('h2').textContent === 'Batch time')"
            height += ".querySelector('svg > rect').getAttribute('y')) - 2.5"
            await browser.wait_for("document.querySelectorAll('figure').length >= 5")
            assert await browser.evaluate(height) < 2
            await browser.evaluate("document.getElementById('log').click()")
            assert await browser.evaluate(height) > 30
            await save(browser, "logarithmic")
            await browser.evaluate("document.getElementById('log').click()")
            await browser.evaluate(
                "(span => { span.value = '300'; span.dispatchEvent(new Event('change')); })"
                "(document.getElementById('span'))"
            )
            assert await browser.evaluate(height) > 60
            titles = "[...document.querySelectorAll('figure h2')].map((each) => each.textContent)"
            shown = await browser.evaluate(titles)
            assert "Watermark delay" in shown and "Age of the newest event" not in shown
            assert (await card(browser, NUMBERS))["watermark delay"] == "5 s"
            link = "document.getElementById('spark-ui')"
            assert await browser.evaluate(f"{link}.href") == "http://127.0.0.1:4040/"
            assert await browser.evaluate(f"{link}.checkVisibility()")


async def test_the_address_of_sparks_page_is_not_a_script(port: int) -> None:
    with ProgressPage("pipeline of flights") as page:
        page.running("javascript:alert(1)")
        page.add(batch(lag=0, lag_by_partition={"flights": {"0": 0}}))
        async with opened(page, port) as browser:
            await browser.wait_for("document.querySelectorAll('figure').length >= 3")
            link = "document.getElementById('spark-ui')"
            assert await browser.evaluate(f"[{link}.href, {link}.checkVisibility()]") == ["", False]
            empty = "document.body.innerText.includes('Lag by partition')"
            assert not await browser.evaluate(empty)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1_300])
async def test_the_page_fits_its_window(port: int, width: int, dark: bool) -> None:
    with ProgressPage("pipeline of flights", lag_limit=5_000) as page:
        feed(page)
        async with opened(page, port) as browser:
            await browser.look(width=width, height=800, dark=dark)
            await browser.wait_for("document.querySelectorAll('figure').length >= 9")
            found_width, height = await save(
                browser, f"running-{width}-{'dark' if dark else 'light'}"
            )
            assert found_width == width and height > 800
            assert await browser.evaluate("document.documentElement.scrollWidth") == width
            wide = "[...document.querySelectorAll('svg[role=img]')].map((each) => "
            wide += "[each.getBoundingClientRect().width, each.viewBox.baseVal.width])"
            for drawn, units in await browser.evaluate(wide):
                assert abs(drawn - units) <= 1.5  # text has its own size on a phone, too
            for selector in (
                "h1",
                "#state",
                "dt",
                "dd",
                "summary",
                ".muted",
                "h2",
                ".key",
                "th",
                ".value",
            ):
                assert await contrast(browser, selector) >= 4.5, selector
            for selector in (".curve", ".key rect"):
                assert await contrast(browser, selector) >= 3.0, selector


# The ratio of the lightness of an element's color and of what is behind it, as in WCAG.
CONTRAST = r"""(selector) => {
  const node = document.querySelector(selector);
  const style = getComputedStyle(node);
  const drawn = node instanceof SVGElement;
  const color = !drawn ? style.color : style.stroke !== "none" ? style.stroke : style.fill;
  let behind = node;
  while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") {
    behind = behind.parentElement;
  }
  const luminance = (text) => text.match(/\d+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const both = [luminance(color), luminance(getComputedStyle(behind).backgroundColor)];
  return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
}"""


async def contrast(browser: BrowserPage, selector: str) -> float:
    found: float = await browser.evaluate(f"({CONTRAST})({selector!r})")
    return found


async def test_each_chart_has_a_description_and_a_table(port: int) -> None:
    with ProgressPage("pipeline of flights") as page:
        feed(page)
        async with opened(page, port) as browser:
            await browser.wait_for("document.querySelectorAll('figure').length >= 9")
            await browser.call("Accessibility.enable")
            tree = (await browser.call("Accessibility.getFullAXTree"))["nodes"]
            roles: dict[str, list[Any]] = {}
            for node in tree:
                roles.setdefault(node.get("role", {}).get("value", ""), []).append(
                    node.get("name", {}).get("value", "")
                )
            described = [name for name in roles["image"] if "newest" in name]
            assert len(described) == 9
            assert any(f"{NUMBERS}: 1,029" in name for name in described)
            assert any("addBatch 900 ms" in name for name in described)
            tables = "document.querySelectorAll('#charts table, .samples').length"
            assert await browser.evaluate(tables) == await browser.evaluate(
                "document.querySelectorAll('figure').length"
            )
            assert "main" in roles and "status" in roles

            # A table that is open stays so when new numbers arrive.
            await browser.evaluate("document.querySelector('details').open = true")
            page.add(batch(40, rows_per_second=7_654.0))
            await browser.wait_for(f"{text_of('details table')}.includes('7,654')")
            assert await browser.evaluate("document.querySelector('details').open")

            place = await browser.evaluate(
                "(({x, y, width, height}) => [x + width - 20, y + height / 2])"
                "(document.querySelector('svg[role=img]').getBoundingClientRect())"
            )
            await browser.call(
                "Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1]
            )
            await browser.wait_for(f"{text_of('.readout')}.includes({NUMBERS!r})")


async def test_a_failure_is_shown_as_text_and_stays_when_the_server_has_gone(
    port: int,
) -> None:
    page = ProgressPage(HOSTILE)
    with page:
        async with opened(page, port) as browser:
            lags = {HOSTILE: {"0": 5}}
            page.add(batch(0, HOSTILE, lag=5, lag_by_partition=lags, phases_ms={HOSTILE: 3}))
            page.add(rejected(0, samples=[sample(HOSTILE, 0, HOSTILE)]))
            await shows(browser, "running")
            page.fail(f"TOPIC_AUTHORIZATION_FAILED: {HOSTILE}")
            page.__exit__(None, None, None)
            await shows(browser, "failed")
            await save(browser, "failed")
            # With a single micro-batch each axis begins and ends at its time.
            labels = await browser.evaluate(
                "[...document.querySelectorAll('svg[role=img]')].map((each) => "
                "[...each.querySelectorAll('text')].slice(-2).map((text) => text.textContent))"
            )
            assert labels and all(first == last for first, last in labels)
            assert await browser.evaluate(text_of("#problem")) == (
                f"Last error: TOPIC_AUTHORIZATION_FAILED: {HOSTILE}"
            )
            assert await browser.evaluate(text_of("h1")) == HOSTILE
            shown = "[...document.querySelectorAll('dd.value')].map((each) => each.textContent)"
            assert await browser.evaluate(shown) == [HOSTILE]
            assert await browser.evaluate("document.querySelectorAll('img').length") == 0
            # The next polls find no server.
            await browser.wait_for("unreachable !== null")
            assert await browser.evaluate(text_of("#state")) == "failed"


async def test_the_tasks_of_the_longest_stage_have_a_card(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [
        {"task": 3, "executor": "1", "ms": 4_000, "rows": 900},
        {"task": 0, "executor": HOSTILE, "ms": 1_000, "rows": 1_100},
    ]
    stage = {"stage": 12, "tasks": 5, "mean_ms": 1_600.0, "mean_rows": 500.0, "longest": tasks}
    found: dict[str, Any] = {}
    monkeypatch.setattr(QueryTasks, "longest_stage", lambda _self, query, _run: found.get(query))
    title = f"Tasks of the longest stage: {NUMBERS}"
    with ProgressPage("pipeline of flights") as page:
        async with opened(page, port) as browser:
            feed(page, 3)
            await browser.wait_for("document.querySelectorAll('figure').length >= 9")
            assert title not in await browser.evaluate(text_of("#charts"))
            found[NUMBERS] = stage  # later than the micro-batch
            await browser.wait_for(f"{text_of('#charts')}.includes({title!r})")
            await save(browser, "tasks")
            shown = await browser.evaluate(
                "[...document.querySelectorAll('figure')]"
                f".find((each) => each.querySelector('h2').textContent === {title!r}).innerText"
            )
    assert [line.rstrip() for line in shown.splitlines() if line.strip()] == [
        title,
        "stage 12, 5 tasks; the longest takes 2.5 times the mean; "
        "the most records are 2.2 times the mean",
        "task on executor\trecords read\ttime",
        "3 on 1\t900\t4.0 s",
        f"0 on {HOSTILE}\t1,100\t1.0 s",
        "and 3 shorter tasks",
    ]


async def test_a_stalled_query_is_shown_until_it_is_seen(port: int) -> None:
    now = [0.0]
    signs = signs_of(lambda: now[0])
    with ProgressPage("pipeline of flights", signs=signs) as page:
        async with opened(page, port) as browser:
            feed(page, 3)
            signs.seen("1", NUMBERS)
            await shows(browser, "running")
            now[0] = 130.0
            await shows(browser, "stalled")
            await save(browser, "stalled")
            assert await browser.evaluate(text_of("#problem")) == (
                f"{NUMBERS}: no report for 2 min 10 s: it is processing one micro-batch, or "
                "is stalled."
            )
            marked = "[...document.querySelectorAll('.silent h2')].map((each) => each.textContent)"
            assert await browser.evaluate(marked) == [NUMBERS]
            signs.seen("1")
            await shows(browser, "running")
            assert await browser.evaluate(marked) == []
            assert await browser.evaluate("document.getElementById('problem').hidden")


async def test_a_stopped_run_is_distinguished_from_a_lost_connection(port: int) -> None:
    page = ProgressPage("pipeline of flights")
    with page:
        async with opened(page, port) as browser:
            feed(page, 3)
            await shows(browser, "running")
            page._server.close()  # as if its process had been killed
            await shows(browser, "can't be reached")
            await save(browser, "unreachable")
            assert "No answer from the pipeline since" in await browser.evaluate(
                text_of("#problem")
            )
            assert (await card(browser, NUMBERS))["rows in all"] == "3,000"

            # A new run on the same port: the page begins again, without being loaded again.
            port_of_page = urlsplit(page.url).port or 0
            with ProgressPage("second run", port=port_of_page) as second:
                feed(second, 1, first=7)
                await browser.wait_for(f"{text_of('h1')} === 'second run'")
                assert (await card(browser, NUMBERS))["rows in all"] == "1,000"
                assert await browser.evaluate("batches.length") == 2
                assert await browser.evaluate("document.getElementById('problem').hidden")
            await shows(browser, "stopped")
            await save(browser, "stopped")
            assert await browser.evaluate("document.getElementById('problem').hidden")
