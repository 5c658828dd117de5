"""Decides where the fixtures of a test run: on the test's event loop, or in another thread."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

BLOCKING = "blocking"
ANYIO = "anyio"
ASYNCIO_SCOPES = ("function", "class", "module", "package", "session")


def fixture_name(thing: str, mode: str) -> str:
    """Return the name of a fixture for one mode."""
    return f"_{thing}_{mode}"


def asyncio_mode(loop_scope: str) -> str:
    """Return the mode of pytest-asyncio's tests with this loop scope."""
    return f"asyncio_{loop_scope}"


def mode_of(request: pytest.FixtureRequest) -> str:
    """Return the mode of the test that requests a fixture. Fail the test if no plugin runs it, or
    if it does not run on asyncio.
    """
    if not _is_coroutine(request.function):
        return BLOCKING
    marker = request.node.get_closest_marker("asyncio")
    on_anyio = "anyio_backend" in request.fixturenames
    if marker is not None and request.config.pluginmanager.hasplugin("asyncio"):
        if on_anyio:
            pytest.fail(
                (
                    "pytest-asyncio runs this test, but anyio runs its fixtures on another event "
                    "loop: use asyncio_mode = strict and one marker"
                ),
                pytrace=False,
            )
        return asyncio_mode(
            marker.kwargs.get("loop_scope")
            or marker.kwargs.get("scope")
            or _default_loop_scope(request.config)
        )
    if on_anyio:
        _check_backend(request.getfixturevalue("anyio_backend"))
        return ANYIO
    pytest.fail(
        (
            "this test is a coroutine, but no plugin runs it: mark it with pytest.mark.asyncio "
            "(pytest-asyncio) or pytest.mark.anyio"
        ),
        pytrace=False,
    )


def _is_coroutine(function: Any) -> bool:
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    return inspect.iscoroutinefunction(inner)


def _default_loop_scope(config: pytest.Config) -> str:
    try:
        return str(config.getini("asyncio_default_test_loop_scope"))
    except ValueError:  # pytest-asyncio before 0.26 lacks this setting
        return "function"


def _check_backend(backend: Any) -> None:
    name = backend if isinstance(backend, str) else backend[0]
    if name != "asyncio":
        pytest.fail(
            (
                f"the Kafka fixtures need asyncio, but this test runs on {name}: add a "
                "fixture anyio_backend that returns 'asyncio'"
            ),
            pytrace=False,
        )
