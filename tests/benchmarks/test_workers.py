"""A worker measures in a separate process and reports all errors to its parent."""

from __future__ import annotations

import os

import pytest

from benchmarks import workers
from benchmarks.adapters import Settings
from benchmarks.broker import broker_process
from benchmarks.workers import MeasureError, worker

pytestmark = pytest.mark.slow

LOAD = {"topic": "t", "records": 100}
NO_BROKER = Settings("127.0.0.1:1")


@pytest.mark.parametrize("uvloop", [False, True])
async def test_a_worker_handles_several_requests(uvloop: bool) -> None:
    with broker_process({"t": 1}) as servers:
        async with worker("aioprod", uvloop=uvloop) as opened:
            for _ in range(2):
                numbers = await opened.call(
                    "throughput", Settings(servers), {"load": LOAD, "warm_up_records": 10}
                )
                assert numbers["records"] == 100 and numbers["cpu_s"] > 0 and numbers["wall_s"] > 0
            assert opened.name == ("aioprod (uvloop)" if uvloop else "aioprod")


async def test_a_worker_reports_a_traceback_and_continues() -> None:
    async with worker("aioprod") as opened:
        with pytest.raises(
            MeasureError,
            match=r"aioprod: Traceback[^$]*No module named 'benchmarks.measures.nothing'",
        ):
            await opened.call("nothing", NO_BROKER, {})
        with pytest.raises(MeasureError, match="BrokerConnectionError"):
            await opened.call("throughput", NO_BROKER, {"load": LOAD, "warm_up_records": 10})


async def test_a_slow_worker_times_out_and_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "_STOP_TIMEOUT_S", 0.5)
    with broker_process({"t": 1}) as servers:
        async with worker("aioprod") as opened:
            with pytest.raises(
                TimeoutError, match=r"aioprod: no response to throughput within 0.2 s"
            ):
                await opened.call(
                    "throughput",
                    Settings(servers),
                    {"load": {**LOAD, "records": 3_000_000}, "warm_up_records": 10},
                    timeout_s=0.2,
                )
        with pytest.raises(ProcessLookupError):
            os.kill(opened.pid, 0)
