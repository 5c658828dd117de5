"""Fixtures for tests of connections."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.net.certificates import Certificates
from tests.testing import leaks


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """A certificate authority of this run."""
    return trustme.CA()


@pytest.fixture
def certificates(authority: trustme.CA, tmp_path: Path) -> Certificates:
    """Certificates of that authority, and files with them."""
    return Certificates(authority, tmp_path)


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[io.StringIO]:
    """What all loggers write at their most talkative, tracebacks included."""
    with leaks.everything_logged() as stream:
        yield stream
