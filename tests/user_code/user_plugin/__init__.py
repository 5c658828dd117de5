"""A user's package, of which a module fails while it is imported."""

from collections.abc import Callable

fail: Callable[[], object] = lambda: None  # noqa: E731
