"""A stalled query says why: what takes longer than ten seconds is logged, in tasks and on
the driver.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod.spark import reading, sending
from aioprod.spark.offsets import OffsetRange
from aioprod.spark.waiting import named_wait
from tests.selection import by_default_each
from tests.testing.bad_servers import ORDERS, SILENT, Row, time_of

from . import test_spark_limits as limits

FIRST_S = 10.0
MORE = 4


class PatientDriver(limits.Driver):
    """One whose limits are longer than what is logged."""

    factor = MORE


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if record.name == "aioprod.spark.waiting"
    ]


@pytest.mark.virtual_time
async def test_a_long_wait_is_logged_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    with named_wait("asking brokers", "kafka.max.block.ms"):
        await asyncio.sleep(75)
    assert lines(caplog) == [
        f"driver: asking brokers has taken {seconds} s so far; limit: kafka.max.block.ms"
        for seconds in (10, 30, 70)
    ]


@pytest.mark.virtual_time
async def test_a_short_wait_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with named_wait("asking brokers", "kafka.max.block.ms"):
        await asyncio.sleep(9)
    await asyncio.sleep(100)
    assert lines(caplog) == []


def test_a_task_says_that_it_waits_for_spark(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose rows come over a blocking socket."""
    monkeypatch.setattr("aioprod.spark.waiting._FIRST_S", 0.01)
    logged = threading.Event()

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.set()

    def rows() -> Iterator[pa.RecordBatch]:
        assert logged.wait(20)
        yield pa.record_batch({"value": [b"x"]})

    async def count() -> int:
        return sum([batch.num_rows async for batch in sending.portions(rows())])

    handler = Seen()
    log = logging.getLogger("aioprod.spark.waiting")
    log.addHandler(handler)
    try:
        assert asyncio.run(count()) == 1
    finally:
        log.removeHandler(handler)
    assert "waiting for rows from Spark" in lines(caplog)[0]


async def _begun(it: limits.Driver) -> None:
    await it.task.start()
    await it.task.begin_transaction()


async def _write(it: limits.Driver) -> None:
    sender = sending.RowSender(it.task, ORDERS)
    await sender.send(pa.record_batch({"value": [b"x"]}))
    await sender.finish()


async def _read(it: limits.Driver) -> None:
    item = OffsetRange(ORDERS, 0, 0, 5)
    batches = reading._batches(reading.ReadClients(it.client, None), it.source, item)
    while await reading._next(batches, item) is not None:
        pass


ROWS: dict[str, Row] = {
    **{name: row for name, row in limits.ROWS.items() if name.startswith("spark.")},
    "a task that writes": Row(_write, 0, (), _begun),
    "a task that reads": Row(_read, 0, ()),
}
# They end within 10 s, whatever the settings are.
SHORT = {
    "spark.checkpoint_positions.look_up",  # of a command; the first lookup ends it
    "spark.coordination.CoordinationClient.close",
    "spark.exactly_once.driver.wait_for_strays",
    "spark.exactly_once.transactions.list_transactions",
    "spark.exactly_once.sweeping.sweep",
    "spark.group_positions.GroupPositions.commit",
    "spark.planning.select_partitions",
    "spark.starting.start_patiently",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=by_default_each(2, 1 + place)) for place, each in enumerate(ROWS)],
)
def test_what_takes_long_is_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    taken = time_of(ROWS[name], SILENT, PatientDriver)
    assert (taken.seconds <= FIRST_S) == (name in SHORT), taken
    assert bool(lines(caplog)) == (name not in SHORT), taken
    assert all("limit: kafka" in line for line in lines(caplog))
