"""The observers of an admin client are called for its calls."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aioprod import Admin, AdminClosedError, AdminObserver, BrokerError, ErrorCode
from aioprod.admin import NewTopic
from aioprod.metrics import CallDone, ObservedAdmin
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail

pytestmark = pytest.mark.virtual_time


class Recorder(AdminObserver):
    """Notes everything."""

    def __init__(self) -> None:
        self.started: list[ObservedAdmin] = []
        self.calls: list[CallDone] = []
        self.opened: list[bool] = []
        self.closed = 0

    def on_start(self, admin: ObservedAdmin) -> None:
        self.started.append(admin)

    def on_call(self, event: CallDone) -> None:
        self.calls.append(event)

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        self.opened.append(opened)

    def close(self) -> None:
        self.closed += 1


async def test_calls_are_reported_with_their_outcome(broker: EmbeddedCluster) -> None:
    recorder = Recorder()
    settings = {"client_id": "ops", "observers": [recorder]}
    async with Admin(broker.bootstrap_servers, **settings) as admin:  # type: ignore[arg-type]
        await admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)])
        made = await admin.create_topics([NewTopic("b", 1, 1), NewTopic("c", 1, 1)])
        assert list(made.errors) == ["b"]
        with pytest.raises(BrokerError):
            await admin.describe_topics("nowhere", timeout_ms=1_000)
    names = [(call.call, call.items, call.failed) for call in recorder.calls]
    assert names[:2] == [("create_topics", 2, 0), ("create_topics", 2, 1)]
    assert names[2][1:] == (1, 1)
    good, bad, missing = recorder.calls
    assert good.error is None and isinstance(bad.error, BrokerError)
    assert bad.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert isinstance(missing.error, BrokerError) and missing.attempts > 1
    assert all(call.latency_s >= 0 for call in recorder.calls)
    assert [each.client_id for each in recorder.started] == ["ops"]
    assert recorder.closed == 1
    assert recorder.opened.count(True) == recorder.opened.count(False) > 0


async def test_attempts_are_counted(broker: EmbeddedCluster) -> None:
    recorder = Recorder()
    broker.on(ApiKey.CREATE_TOPICS, fail(ErrorCode.NOT_CONTROLLER), times=2)
    async with Admin(broker.bootstrap_servers, observers=[recorder]) as admin:
        await admin.create_topics([NewTopic("a", 1, 1)])
    assert [(call.attempts, call.failed) for call in recorder.calls] == [(3, 0)]


async def test_an_observer_does_not_hide_that_an_error_was_never_retrieved(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    async with Admin(broker.bootstrap_servers, observers=[recorder]) as admin:
        await admin.delete_topics(["nowhere"], timeout_ms=1_000)
        gc.collect()
    assert recorder.calls[0].failed == 1
    assert "never retrieved" in caplog.text


async def test_a_call_that_close_ends_is_reported(broker: EmbeddedCluster) -> None:
    recorder = Recorder()
    broker.on_every(ApiKey.CREATE_TOPICS, fail(ErrorCode.NOT_CONTROLLER))
    async with Admin(broker.bootstrap_servers, observers=[recorder]) as admin:
        call = asyncio.create_task(admin.create_topics([NewTopic("a", 1, 1)]))
        await asyncio.sleep(0.5)
        await admin.close()
        with pytest.raises(AdminClosedError):
            await call
    (reported,) = recorder.calls
    assert isinstance(reported.error, AdminClosedError) and reported.failed == reported.items == 1
