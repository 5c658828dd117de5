"""The live page of the demo, if it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from aioprod.demo.options import DemoError, DemoOptions
from aioprod.interrupt import Interrupted

if TYPE_CHECKING:
    from aioprod.spark.progress import QueryProgress


class DemoPage(Protocol):
    """The reports of the demo to the page."""

    def running(self) -> None:
        """Report that Spark runs."""

    def add(self, progress: QueryProgress) -> None:
        """Report a micro-batch."""


class _NoPage:
    def running(self) -> None:
        pass

    def add(self, progress: QueryProgress) -> None:
        pass


@contextmanager
def demo_page(options: DemoOptions, console: Console) -> Iterator[DemoPage]:
    """Serve the page until the block has ended.

    Raises:
        DemoError: if the page's address cannot be used.
    """
    if options.page is None:
        yield _NoPage()
        return
    from aioprod.spark.page import PageError
    from aioprod.spark.pipeline.watching import served_page  # loads Spark

    page = served_page(f"aioprod demo: {options.topic_prefix}flights", options.page)
    with ExitStack() as stack:
        try:
            stack.enter_context(page)
        except PageError as error:
            raise DemoError(str(error)) from error
        console.print(f"the page is {page.url}", highlight=False, soft_wrap=True)
        try:
            yield page
        except Interrupted:
            page.stop()  # a usual end
            raise
