"""The monitoring options of a pipeline's command line: the page, alerts, and the exit status. Any
command that runs streaming queries can use them.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aioprod.page_server import parse_address
from aioprod.spark.alerts import AlertRules
from aioprod.spark.page import ProgressPage
from aioprod.spark.pipeline.running import reason_of
from aioprod.spark.progress import QueryProgress
from aioprod.spark.signs import QuerySigns
from aioprod.spark.webhook import Webhook, check_url

LIMIT_EXCEEDED = 3
"""The exit status of a run that ended without a failure, but exceeded a limit."""

DEFAULT_ADDRESS = "127.0.0.1:0"

# Spark reports every 10 s that a query is idle.
_MIN_STALL_TIMEOUT_S = 20
_LOOK_EVERY_S = 1.0


class Watch:
    """Reports a run's progress to the page and the alerts.

    Attributes:
        signs: an argument for the `ProgressListener` of the run.
    """

    def __init__(
        self, title: str, page: ProgressPage | None, rules: AlertRules, signs: QuerySigns
    ) -> None:
        self._title = title
        self.signs = signs
        self._page = page
        self._rules = rules

    def running(self, spark_ui: str | None = None) -> None:
        """Report that Spark is running, and the address of Spark's UI."""
        if self._page is not None:
            self._page.running(spark_ui)

    def add(self, progress: QueryProgress) -> None:
        """Report a micro-batch."""
        if self._page is not None:
            self._page.add(progress)
        self._rules.add(progress)

    def status(self) -> int:
        """Return the exit status of a run that has not failed, 0 or 3; print why it is 3."""
        exceeded = self._rules.exceeded()
        for text in exceeded:
            print(f"{self._title}: {text}", file=sys.stderr, flush=True)
        return LIMIT_EXCEEDED if exceeded else 0


def add_watching(parser: argparse.ArgumentParser) -> None:
    """Add ``--page``, ``--webhook`` and the limits."""
    add_page(parser)
    hook = parser.add_mutually_exclusive_group()
    hook.add_argument(
        "--webhook",
        type=_url,
        metavar="URL",
        help="POST JSON to this address when the run fails or exceeds a limit",
    )
    hook.add_argument(
        "--webhook-file",
        dest="webhook",
        type=_url_in_file,
        metavar="FILE",
        help="a file that contains this address, if it is secret",
    )
    for name, number in (("lag", "lag of a query"), ("dead-letters", "number of dead letters")):
        parser.add_argument(
            f"--max-{name}",
            type=_limit,
            metavar="N",
            help=f"a larger {number} is an alert, and at the end exit status {LIMIT_EXCEEDED}",
        )
    parser.add_argument(
        "--stall-timeout",
        type=_stall_timeout,
        metavar="SECONDS",
        help="a query without a report for longer is an alert, and /healthz of the page "
        "responds with 503; choose several times the longest micro-batch",
    )


def add_page(parser: argparse.ArgumentParser) -> None:
    """Add ``--page``."""
    parser.add_argument(
        "--page",
        type=_address,
        nargs="?",
        const=_address(DEFAULT_ADDRESS),
        metavar="[HOST:]PORT",
        help="show progress on a web page too, with metrics for Prometheus (default: any free port "
        "of 127.0.0.1)",
    )


@contextmanager
def watched(given: argparse.Namespace, program: str, title: str) -> Iterator[Watch]:
    """Serve the page and send alerts, as configured on the command line, until the block ends. An
    exception in the block is reported as the failure. ``program`` is the prefix of printed lines,
    ``title`` the run's name.

    Raises:
        PageError: if the page's address cannot be used.
    """
    with ExitStack() as stack:
        hook = Webhook(given.webhook) if given.webhook is not None else None
        if hook is not None:
            stack.callback(hook.close)
        rules = AlertRules(
            title,
            lambda alert: hook.send(alert.document()) if hook is not None else None,
            lag_limit=given.max_lag,
            dead_letter_limit=given.max_dead_letters,
        )
        signs = QuerySigns(given.stall_timeout)
        if given.stall_timeout is not None:
            stack.enter_context(_silences_watched(signs, rules))
        page = None
        if given.page is not None:
            page = stack.enter_context(served_page(title, given.page, given.max_lag, signs))
            print(f"{program}: the page is {page.url}", file=sys.stderr, flush=True)
        try:
            yield Watch(program, page, rules, signs)
        except Exception as error:
            rules.fail(reason_of(error))
            raise


@contextmanager
def _silences_watched(signs: QuerySigns, rules: AlertRules) -> Iterator[None]:
    """Check for stalled queries until the block ends. This runs in a thread, because a stalled
    query calls no listener.
    """
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            rules.look_at_silences(signs)

    thread = threading.Thread(target=look, name="aioprod-stalls", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LOOK_EVERY_S)


def served_page(
    title: str,
    address: tuple[str, int],
    lag_limit: int | None = None,
    signs: QuerySigns | None = None,
) -> ProgressPage:
    """Return the page of a pipeline, which is not listening yet."""
    host, port = address
    return ProgressPage(
        title, host=host, port=port, lag_limit=lag_limit, signs=signs, reason=reason_of
    )


def _url(text: str) -> str:
    try:
        return check_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _url_in_file(name: str) -> str:
    try:
        return _url(Path(name).read_text(encoding="utf-8").strip())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"can't read {name}: {error.strerror}") from None


def _address(text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text!r}")
    return int(text)


def _stall_timeout(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < _MIN_STALL_TIMEOUT_S:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least {_MIN_STALL_TIMEOUT_S} seconds, not {text!r}: "
            "Spark reports every 10 s that a query waits for records"
        )
    return int(text)
