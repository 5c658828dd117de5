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
    """Return a certificate authority for this run."""
    return trustme.CA()


@pytest.fixture
def certificates(authority: trustme.CA, tmp_path: Path) -> Certificates:
    """Return certificates of that authority, and files with them."""
    return Certificates(authority, tmp_path)


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[io.StringIO]:
    """Return what all loggers write at level DEBUG, including tracebacks."""
    with leaks.everything_logged() as stream:
        yield stream
