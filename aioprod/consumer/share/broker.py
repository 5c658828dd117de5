"""The share session with one broker: fetches records and acknowledges them, one request at a time.

Acknowledgements go with the next ShareFetch, or alone if no fetch is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from aioprod.consumer.share.acknowledgements import (
    Acknowledgements,
    PartitionKey,
    SharePartition,
)
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.pacing import Pacing
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import (
    Leader,
    ShareRequests,
    acknowledge_results,
    fetch_results,
)
from aioprod.consumer.share.session import ShareSession
from aioprod.consumer.share.settlement import Settlement, refusal_of
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.foreign_text import reason_of
from aioprod.net.backoff import Backoff
from aioprod.net.refusals import explain
from aioprod.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from aioprod.protocol.messages.share_fetch import PartitionData, ShareFetchResponse
from aioprod.types import AcknowledgeType


class Surroundings(Protocol):
    """What a broker's session tells the consumer."""

    @property
    def wants_records(self) -> bool:
        """Whether the application waits for records."""

    def fetched(
        self,
        broker: ShareBroker,
        partition: SharePartition,
        data: PartitionData,
        locked_until: float,
    ) -> int:
        """Take the acquired records of a partition, and when their locks end at the earliest.
        Return their number.
        """

    def renewed(self, partition: SharePartition, offset: int, locked_until: float) -> None:
        """Note the new end of a lock."""

    def stale(self, leaders: Iterable[Leader]) -> None:
        """Adopt leaders that a broker names, and refresh the metadata."""

    def failed(self, what: SharePartition | int, error: KafkaError | None) -> None:
        """Note the error of a partition or node, or None if it is over."""

    def changed(self) -> None:
        """Note that a request has ended."""


class ShareBroker:
    """One broker that leads partitions of the member.

    Args:
        node_id: the broker.
        requests: sends to it.
        surroundings: hears of records and errors.
        outcomes: hears of acknowledgements.
        reporter: hears of requests.
        backoff: the pauses after failures.
        limit_s: how long acknowledgements are sent again after errors that a retry may cure.

    Attributes:
        session: the share session.
        wanted: the partitions to fetch.
    """

    def __init__(
        self,
        node_id: int,
        requests: ShareRequests,
        surroundings: Surroundings,
        outcomes: Outcomes,
        reporter: ShareReporter,
        backoff: Backoff,
        limit_s: float,
    ) -> None:
        self.node_id = node_id
        self.session = ShareSession()
        self.wanted: frozenset[SharePartition] = frozenset()
        self._requests = requests
        self._surroundings = surroundings
        self._reporter = reporter
        self._pacing = Pacing(backoff, self.look)
        self._waiting = Acknowledgements()
        self._settlement = Settlement(
            node_id, self._waiting, outcomes, reporter, requests.principal, limit_s
        )
        self._in_flight: asyncio.Future[Any] | None = None
        self._sent_at = 0.0
        self._closing = False  # only the end of the session is still sent
        self._ended = False

    @property
    def settled(self) -> bool:
        """Whether each acknowledgement has an outcome."""
        return self._settlement.done

    @property
    def supports_renewal(self) -> bool:
        """Whether the broker can renew locks; True while it is not connected."""
        return self._requests.supports_renewal(self.node_id)

    # -- acknowledgements --------------------------------------------------------------------------

    def acknowledge(
        self,
        partition: SharePartition,
        offsets: Sequence[int],
        kind: AcknowledgeType,
        generation: int,
        locked_until: float,
    ) -> None:
        """Acknowledge records that were acquired in this generation of the session."""
        if generation != self.session.generation or self._ended:
            self._settlement.refuse(partition, offsets, kind)
            return
        now = asyncio.get_running_loop().time()
        renew = kind is AcknowledgeType.RENEW
        self._pacing.acknowledged(now, first=not self._waiting, urgent=renew)
        self._waiting.add(partition, offsets, kind, now, locked_until)

    def skip(
        self,
        partition: SharePartition,
        runs: Sequence[tuple[int, int]],
        kind: int,
        locked_until: float,
    ) -> None:
        """Acknowledge acquired offsets that the application does not get."""
        now = asyncio.get_running_loop().time()
        if runs and not self._ended:
            self._pacing.acknowledged(now, first=not self._waiting, urgent=False)
            self._waiting.add_runs(partition, runs, kind, now, locked_until)

    def flush(self) -> None:
        """Send acknowledgements now."""
        self._pacing.flush()
        self.look()

    # -- requests ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Send the next request, if one is due."""
        if self._in_flight is not None or self._closing:
            return
        now = asyncio.get_running_loop().time()
        if self._pacing.paused(now):
            if self.wanted and self._pacing.searches and not self._requests.connected(self.node_id):
                self._surroundings.stale(())  # at the pace of metadata: another may lead by now
            self._pacing.wait(now, acknowledgements=False)
            return
        fetch = bool(self.wanted) and self._surroundings.wants_records
        waiting = self._waiting
        alone = waiting.renews or not waiting.only_of(self.wanted)
        if waiting and self.session.is_open and (alone or not fetch):
            if alone or not self._pacing.lingers(now):
                self._acknowledge()
            else:
                self._pacing.wait(now, acknowledgements=True)
        elif fetch:
            self._fetch()

    def _fetch(self) -> None:
        wanted = self.wanted
        sent = self._settlement.send(asyncio.get_running_loop().time())
        change = self.session.change(wanted)
        self._begin(
            self._requests.fetch(self.node_id, change, sent),
            "ShareFetch",
            partial(self._fetched, wanted),
        )

    def _acknowledge(self, *, closing: bool = False) -> None:
        renews = self._waiting.renews
        sent = self._settlement.send(asyncio.get_running_loop().time())
        if not (sent or closing):
            self._surroundings.changed()
            return
        epoch = self.session.epoch
        self._begin(
            self._requests.acknowledge(self.node_id, epoch, sent, renews=renews, closing=closing),
            "ShareAcknowledge",
            self._acknowledged,
        )

    def _begin(self, future: asyncio.Future[Any], api: str, handle: Callable[[Any], None]) -> None:
        self._in_flight = future
        self._sent_at = asyncio.get_running_loop().time()
        future.add_done_callback(partial(self._done, api, handle))

    def _done(self, api: str, handle: Callable[[Any], None], future: asyncio.Future[Any]) -> None:
        self._in_flight = None
        if future.cancelled():
            return
        error = future.exception()
        if self._ended:
            return
        assert error is None or isinstance(error, KafkaError), error
        self._reporter.request_done(self.node_id, api, self._latency_s(), error)
        try:
            if error is not None:
                raise error
            reply = future.result()
            code = ErrorCode.of(reply.error_code)
            if code:
                said = reason_of(reply.error_message)
                text = f" ({said})" if said else ""
                where = f"broker {self.node_id}: share session of group"
                failed = BrokerError(code, f"{where} {self._requests.group_id!r}{text}")
                raise explain(failed, "ShareFetch", self._requests.principal)
            self._surroundings.failed(self.node_id, None)
            self._pacing.succeeded()
            handle(reply)
        except KafkaError as failure:
            self._lose(failure)
            self._pacing.pause(asyncio.get_running_loop().time())
            self._surroundings.failed(self.node_id, failure)
            self._surroundings.stale(())
        self._surroundings.changed()
        self.look()

    def _fetched(self, wanted: frozenset[SharePartition], reply: ShareFetchResponse) -> None:
        self.session.fetched(wanted)
        self.session.lock_timeout_told(reply.acquisition_lock_timeout_ms)
        partitions = {each.key: each for each in wanted}
        results = fetch_results(reply)
        trouble = self._settle(results.acknowledgements)
        size = records = 0
        for key, data in results.data.items():
            partition = partitions.pop(key, None)
            if partition is None:
                continue
            code = ErrorCode.of(data.error_code)
            trouble = trouble or bool(code)
            refusal = None
            if code:
                refusal = refusal_of(partition, code, "ShareFetch", self._requests.principal)
            self._surroundings.failed(partition, refusal)
            size += len(data.records or b"")
            if data.acquired_records:
                locked_until = self.session.locked(self._sent_at)
                records += self._surroundings.fetched(self, partition, data, locked_until)
        for partition in partitions.values():  # left out: neither records nor errors
            self._surroundings.failed(partition, None)
        self._reporter.fetched(
            self.node_id, self._latency_s(), size, records, reply.throttle_time_ms
        )
        if trouble:
            self._pacing.pause(asyncio.get_running_loop().time())
            self._surroundings.stale(results.leaders)

    def _acknowledged(self, reply: ShareAcknowledgeResponse) -> None:
        self.session.acknowledged()
        if reply.acquisition_lock_timeout_ms:
            self.session.lock_timeout_told(reply.acquisition_lock_timeout_ms)
        results = acknowledge_results(reply)
        if self._settle(results.acknowledgements):
            self._pacing.pause(asyncio.get_running_loop().time())
            self._surroundings.stale(results.leaders)

    def _settle(self, codes: Mapping[PartitionKey, ErrorCode]) -> bool:
        """Handle the error codes of acknowledgements. Return whether one was refused."""
        refused, renewed = self._settlement.answered(codes, asyncio.get_running_loop().time())
        if renewed:
            until = self.session.locked(self._sent_at)
            for partition, offset in renewed:
                self._waiting.extend_lock(partition, offset, until)
                self._surroundings.renewed(partition, offset, until)
        return refused

    def _latency_s(self) -> float:
        """Return the time since the last request was sent."""
        return asyncio.get_running_loop().time() - self._sent_at

    def _lose(self, error: KafkaError) -> None:
        """Begin a new session."""
        self.session.lost()
        self._settlement.session_lost(error)

    # -- end ---------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send the last acknowledgements, and end the session: the broker releases all other
        records. The caller sets the limit.
        """
        self._closing = True
        self._pacing.stop()
        if self._in_flight is not None:
            await asyncio.wait([self._in_flight])
        if self.session.is_open and not self._ended:
            self._waiting.drop_renewals()
            self._acknowledge(closing=True)
            assert self._in_flight is not None
            await asyncio.wait([self._in_flight])

    def end(self, error: KafkaError) -> None:
        """Fail what has no outcome; nothing is sent any more."""
        if not self._ended:
            self._lose(error)
            self._closing = self._ended = True
            self._pacing.stop()
