"""The share session with one broker: fetches records and acknowledges them, one request at a time.

Acknowledgements are sent with the next ShareFetch, or alone if no fetch is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from aioprod.consumer.notifier import Notifier
from aioprod.consumer.share.acknowledgements import (
    Acknowledgements,
    PartitionKey,
    SharePartition,
    refusal_of,
)
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import ShareRequests, acknowledge_results, fetch_results
from aioprod.consumer.share.session import Pacing, ShareSession
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.foreign_text import reason_of
from aioprod.logs import Logger, get_logger
from aioprod.net.refusals import explain
from aioprod.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from aioprod.protocol.messages.share_fetch import PartitionData, ShareFetchResponse
from aioprod.types import AcknowledgeType

log: Logger = get_logger(__name__)


class Recipient(Protocol):
    """Gets what a broker's session receives."""

    @property
    def wants_records(self) -> bool:
        """True if the application waits for records."""

    def fetched(
        self,
        broker: ShareBroker,
        partition: SharePartition,
        data: PartitionData,
        locked_until: float,
    ) -> int:
        """Take the acquired records of a partition, and the time at which their locks end at the
        earliest. Return their number.
        """

    def renewed(self, partition: SharePartition, offset: int, locked_until: float) -> None:
        """Note the new end of a lock."""


class ShareBroker:
    """One broker that leads partitions of the member.

    Args:
        node_id: the broker.
        requests: sends to it, and has the pauses after failures.
        recipient: gets the records, and the renewals of locks.
        assignment: keeps errors, and adopts leaders that the broker names.
        outcomes: gets the outcomes of acknowledgements.
        reporter: counts requests.
        notifier: wakes the waiting call when a request has ended.
        limit_s: how long acknowledgements are sent again after errors that a retry may solve, in
            seconds.

    Attributes:
        session: the share session.
        wanted: the partitions to fetch.
    """

    def __init__(
        self,
        node_id: int,
        requests: ShareRequests,
        recipient: Recipient,
        assignment: ShareAssignment,
        outcomes: Outcomes,
        reporter: ShareReporter,
        notifier: Notifier,
        limit_s: float,
    ) -> None:
        self.node_id = node_id
        self.session: ShareSession = ShareSession()
        self.wanted: frozenset[SharePartition] = frozenset()
        self._requests = requests
        self._recipient = recipient
        self._assignment = assignment
        self._reporter = reporter
        self._notifier = notifier
        self._pacing = Pacing(requests.backoff, self.look)
        self._acknowledgements = Acknowledgements(
            node_id, outcomes, reporter, requests.principal, limit_s
        )
        self._in_flight: asyncio.Future[Any] | None = None
        self._sent_at = 0.0
        self._closing = False  # only the end of the session is still sent
        self._ended = False

    @property
    def acknowledging(self) -> bool:
        """True if an acknowledgement has no outcome."""
        return self._acknowledgements.pending

    @property
    def supports_renewal(self) -> bool:
        """True if the broker can renew locks, or is not connected."""
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
            self._acknowledgements.refuse(partition, offsets, kind)
            return
        now = asyncio.get_running_loop().time()
        renew = kind is AcknowledgeType.RENEW
        self._pacing.acknowledged(now, first=not self._acknowledgements.waits, urgent=renew)
        self._acknowledgements.add(partition, offsets, kind, now, locked_until)

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
            self._pacing.acknowledged(now, first=not self._acknowledgements.waits, urgent=False)
            self._acknowledgements.add_runs(partition, runs, kind, now, locked_until)

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
                self._assignment.leaders_moved(())  # another broker may lead now
            self._pacing.wait(now, acknowledgements=False)
            return
        fetch = bool(self.wanted) and self._recipient.wants_records
        waiting = self._acknowledgements
        alone = waiting.renews or not waiting.only_of(self.wanted)
        if waiting.waits and self.session.is_open and (alone or not fetch):
            if alone or not self._pacing.lingers(now):
                self._acknowledge()
            else:
                self._pacing.wait(now, acknowledgements=True)
        elif fetch:
            self._fetch()

    def _fetch(self) -> None:
        wanted = self.wanted
        sent = self._acknowledgements.send(asyncio.get_running_loop().time())
        change = self.session.change(wanted)
        self._begin(
            self._requests.fetch(self.node_id, change, sent),
            "ShareFetch",
            partial(self._fetched, wanted),
        )

    def _acknowledge(self, *, closing: bool = False) -> None:
        renews = self._acknowledgements.renews
        sent = self._acknowledgements.send(asyncio.get_running_loop().time())
        if not (sent or closing):
            self._notifier.notify()
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
        try:
            assert error is None or isinstance(error, KafkaError), error
            self._reporter.request_done(self.node_id, api, self._latency_s(), error)
            if error is not None:
                raise error
            reply = future.result()
            code = ErrorCode.of(reply.error_code)
            if code:
                reason = reason_of(reply.error_message)
                text = f" ({reason})" if reason else ""
                where = f"broker {self.node_id}: share session of group"
                refusal = BrokerError(code, f"{where} {self._requests.group_id!r}{text}")
                raise explain(refusal, "ShareFetch", self._requests.principal)
            self._assignment.failed(self.node_id, None)
            self._pacing.succeeded()
            handle(reply)
        except Exception as failure:
            if not isinstance(failure, KafkaError):
                log.error("broker %d: handling %s failed", self.node_id, api, exc_info=failure)
                failure = KafkaError(f"broker {self.node_id}: handling {api} failed: {failure!r}")
            self._lose_session(failure)
            self._pacing.pause(asyncio.get_running_loop().time())
            self._assignment.failed(self.node_id, failure)
            self._assignment.leaders_moved(())
        self._notifier.notify()
        self.look()

    def _fetched(self, wanted: frozenset[SharePartition], reply: ShareFetchResponse) -> None:
        self.session.fetched(wanted)
        self.session.lock_announced(reply.acquisition_lock_timeout_ms)
        partitions = {each.key: each for each in wanted}
        results = fetch_results(reply)
        failed = self._complete(results.acknowledgements)
        size = records = 0
        for key, data in results.data.items():
            partition = partitions.pop(key, None)
            if partition is None:
                continue
            code = ErrorCode.of(data.error_code)
            failed = failed or bool(code)
            refusal = None
            if code:
                refusal = refusal_of(partition, code, "ShareFetch", self._requests.principal)
            self._assignment.failed(partition, refusal)
            size += len(data.records or b"")
            if data.acquired_records:
                locked_until = self.session.locked(self._sent_at)
                records += self._recipient.fetched(self, partition, data, locked_until)
        for partition in partitions.values():  # left out: neither records nor errors
            self._assignment.failed(partition, None)
        self._reporter.fetched(
            self.node_id, self._latency_s(), size, records, reply.throttle_time_ms
        )
        if failed:
            self._pacing.pause(asyncio.get_running_loop().time())
            self._assignment.leaders_moved(results.leaders)

    def _acknowledged(self, reply: ShareAcknowledgeResponse) -> None:
        self.session.acknowledged()
        if reply.acquisition_lock_timeout_ms:
            self.session.lock_announced(reply.acquisition_lock_timeout_ms)
        results = acknowledge_results(reply)
        if self._complete(results.acknowledgements):
            self._pacing.pause(asyncio.get_running_loop().time())
            self._assignment.leaders_moved(results.leaders)

    def _complete(self, codes: Mapping[PartitionKey, ErrorCode]) -> bool:
        """Pass on the outcomes of acknowledgements. Return True if one was refused."""
        now = asyncio.get_running_loop().time()
        refused, renewed = self._acknowledgements.answered(codes, now)
        if renewed:
            until = self.session.locked(self._sent_at)
            for partition, offset in renewed:
                self._acknowledgements.extend_lock(partition, offset, until)
                self._recipient.renewed(partition, offset, until)
        return refused

    def _latency_s(self) -> float:
        """Return the time since the last request was sent."""
        return asyncio.get_running_loop().time() - self._sent_at

    def _lose_session(self, error: KafkaError) -> None:
        """Begin a new session."""
        self.session.lost()
        self._acknowledgements.session_lost(error)

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
            self._acknowledgements.drop_renewals()
            self._acknowledge(closing=True)
            assert self._in_flight is not None
            await asyncio.wait([self._in_flight])

    def end(self, error: KafkaError) -> None:
        """Fail what has no outcome; nothing is sent any more."""
        if not self._ended:
            self._lose_session(error)
            self._closing = self._ended = True
            self._pacing.stop()
