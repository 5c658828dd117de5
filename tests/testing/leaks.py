"""Collects all parts of an error that can be printed or logged, and so could reveal a secret."""

from __future__ import annotations

import io
import logging
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager


@contextmanager
def everything_logged() -> Iterator[io.StringIO]:
    """Return what all loggers write at level DEBUG, including tracebacks."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def whole_text(error: BaseException, own_files: Collection[str]) -> str:
    """Return an error, its causes and contexts, with the local variables of all frames.

    Args:
        error: the error that was caught.
        own_files: files whose frames are left out, such as the test's, because its callers know the
            secret.
    """
    parts = []
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        left += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        parts += [repr(each), str(each), repr(getattr(each, "__notes__", ""))]
        for frame, line in traceback.walk_tb(each.__traceback__):
            if frame.f_code.co_filename not in own_files:
                place = f"{frame.f_code.co_filename}:{line}"
                parts += [f"{place} {name} = {value!r}" for name, value in frame.f_locals.items()]
    return "\n".join(parts)
