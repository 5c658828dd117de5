"""``getone``, ``getmany`` and the slow path of ``async for``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aioprod.arguments import check_max_records, check_timeout_ms
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.calls.turns import PollTurns
from aioprod.consumer.membership import Membership
from aioprod.consumer.ready_records import ReadyRecords
from aioprod.consumer.records import Records
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.subscription import Mode, SubscriptionState
from aioprod.counts import counted
from aioprod.errors import ConfigError, ConsumerStateError, KafkaTimeoutError
from aioprod.preparation import NotPrepared
from aioprod.types import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

# A call without a timeout gives the group this long, then checks again.
_JOIN_S = 30.0


class RecordCalls:
    """Returns records, and does the group's work inside the application's calls."""

    def __init__(
        self,
        config: ConsumerConfig,
        guard: CallGuard,
        ready: ReadyRecords,
        turns: PollTurns,
        scheduler: Scheduler,
        membership: Membership,
        subscription: SubscriptionState,
        reporter: ConsumerReporter,
    ) -> None:
        self._max_poll_records = config.max_poll_records
        self._guard = guard
        self._ready = ready
        self._turns = turns
        self._scheduler = scheduler
        self._membership = membership
        self._subscription = subscription
        self._reporter = reporter

    async def getone(self, timeout_ms: float | None) -> ConsumerRecord:
        """Return the next record, and decode the ones after it."""
        async with self._guard.waiting_call():
            deadline = _deadline(timeout_ms)
            while True:
                may_read = await self._prepare(deadline)
                try:
                    if may_read and self._ready.fill(self._max_poll_records):
                        return self._ready.records.popleft()
                    waited = await self._wait(deadline)
                except NotPrepared as needed:
                    # No position changes: the next look at the data calls the deserializer again.
                    waited = await needed.prepare_by(deadline)
                if not waited:
                    assert timeout_ms is not None
                    raise self._no_record(timeout_ms)

    async def getmany(self, max_records: int | None, timeout_ms: float | None) -> Records:
        """Return fetched records; wait only if there are none."""
        most = self._max_poll_records if max_records is None else max_records
        check_max_records(most)
        async with self._guard.waiting_call():
            deadline = _deadline(timeout_ms)
            while True:
                may_read = await self._prepare(deadline)
                records = Records(())
                try:
                    records = self._ready.take(most if may_read else 0)
                    waited = bool(records) or await self._wait(deadline)
                except NotPrepared as needed:
                    waited = await needed.prepare_by(deadline)
                if records or not waited:
                    return records

    async def get_arrow(self, max_records: int | None, timeout_ms: float | None) -> pa.Table:
        """Return fetched records as a table; wait only if there are none."""
        if max_records is not None:
            check_max_records(max_records)
        if (refusal := self._ready.converter.refusal) is not None:
            raise ConfigError(refusal)
        table_of = _table_of_arrow()
        async with self._guard.waiting_call():
            deadline = _deadline(timeout_ms)
            while True:
                may_read = await self._prepare(deadline)
                parts: list[Any] = []
                try:
                    if may_read:
                        parts = self._ready.take_arrow(max_records)
                    waited = bool(parts) or await self._wait(deadline)
                except NotPrepared as needed:
                    waited = await needed.prepare_by(deadline)
                if parts or not waited:
                    return table_of(parts)

    async def _prepare(self, deadline: float | None) -> bool:
        """Do the group's work and raise pending errors; return whether records may be returned."""
        if self._guard.is_nested:
            raise ConsumerStateError(
                "a rebalance listener can't ask for records: the call in which it runs returns them"
            )
        now = asyncio.get_running_loop().time()
        membership = self._membership
        may_read = membership.polled(now)
        self._reporter.polled(now)
        if membership.needs_attention:
            await membership.ensure_active(now + _JOIN_S if deadline is None else deadline)
            self._guard.check_open()  # a listener may have closed the consumer
        # Nothing is awaited between here and the wait for news, so that no error is missed.
        await self._turns.begin(now)
        if membership.failure is not None:
            raise membership.failure.with_traceback(None)
        membership.maybe_auto_commit(now)
        self._turns.raise_problem()
        return may_read

    async def _wait(self, deadline: float | None) -> bool:
        """Wait for records or other news; return False if the deadline has passed."""
        self._guard.check_open()  # a background task may have failed
        if self._subscription.mode is Mode.NONE:
            raise ConsumerStateError(
                "nothing to read: give topics, or call subscribe() or assign()"
            )
        for state in self._subscription.partitions.values():
            if state.failure is not None:
                raise state.failure.with_traceback(None)
        if self._membership.needs_attention:
            return deadline is None or asyncio.get_running_loop().time() < deadline
        self._scheduler.read()
        return await self._turns.wait(deadline)

    def _no_record(self, timeout_ms: float) -> KafkaTimeoutError:
        where = ", ".join(sorted(self._subscription.all_topics())) or "no partition"
        read = self._reporter.records_so_far(asyncio.get_running_loop().time())
        cause = self._turns.problem or self._membership.problem
        why = f"; the last error: {cause}" if cause is not None else ""
        error = KafkaTimeoutError(
            f"no record from {where} within {timeout_ms:g} ms, "
            f"after {counted(read, 'record')} so far{why}"
        )
        error.__cause__ = cause
        return error


def _table_of_arrow() -> Callable[[list[Any]], pa.Table]:
    try:
        from aioprod.consumer.arrow_tables import table_of
    except ImportError as error:
        raise ConfigError(
            f'getarrow needs pyarrow and numpy: pip install "aioprod[arrow]" ({error})'
        ) from error
    return table_of


def _deadline(timeout_ms: float | None) -> float | None:
    check_timeout_ms(timeout_ms)
    return None if timeout_ms is None else asyncio.get_running_loop().time() + timeout_ms / 1000
