"""Shared by the tests of send_arrow: numbered rows, which are encoded on the event loop or in a
thread.
"""

from __future__ import annotations

import pytest

from aioprod import Producer
from aioprod.producer import arrow
from aioprod.protocol.record_reader import Record


def numbered(count: int, size: int = 100) -> list[bytes]:
    return [b"%06d" % number + b"x" * (size - 6) for number in range(count)]


def number_of(record: Record) -> int:
    return int((record.value or b"")[:6])


def assert_nothing_kept(producer: Producer) -> None:
    assert not producer._accumulator.incomplete
    assert producer._pool.available == producer.config.buffer_memory
    assert producer._pool.waiting == 0


@pytest.fixture(params=["on the loop", "in a thread"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small tables are encoded on the loop; here they go the way of large ones too."""
    if request.param == "in a thread":
        monkeypatch.setattr(arrow, "_FEW_ROWS", 0)
    chosen: str = request.param
    return chosen
