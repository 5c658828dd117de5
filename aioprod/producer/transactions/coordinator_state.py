"""The coordinator's view of one producer: the protocol, the parts of the open transaction, and the
requests that change them.

It has no callers and no states: :mod:`aioprod.producer.transactions.tasks` chooses the next
request.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from aioprod.config.producer import ProducerConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import AbortableTransactionError, FatalProducerError, ProducerFencedError
from aioprod.logs import Logger, get_logger
from aioprod.producer.batch import ProducerIdAndEpoch
from aioprod.producer.sequences import ProducerState
from aioprod.producer.transactions import requests
from aioprod.producer.transactions.calls import (
    Attempts,
    CoordinatorCall,
    CoordinatorCalls,
    CoordinatorRequests,
)
from aioprod.producer.transactions.previous_end import PreviousEnd
from aioprod.producer.transactions.reply_actions import CoordinatorApi
from aioprod.producer.transactions.requests import Peer
from aioprod.protocol.message import Request
from aioprod.protocol.messages.init_producer_id import InitProducerIdResponse
from aioprod.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from aioprod.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)

log: Logger = get_logger(__name__)

TopicIdLookup = Callable[[Collection[str]], Mapping[str, uuid.UUID]]
_Prepared = tuple[Request[Any], int]
_OPENERS = (CoordinatorApi.ADD_PARTITIONS, CoordinatorApi.ADD_OFFSETS)


class CoordinatorState:
    """The coordinator's state of one producer.

    Attributes:
        v2: whether transactions use the second protocol (KIP-890).
        added: partitions that the coordinator has added to the open transaction (first protocol).
        to_add: partitions that are still to be added (first protocol).
        perhaps_begun: whether a request was sent that opens the transaction at the coordinator,
            with or without a reply.
        begun: whether the coordinator certainly has the transaction.
        previous: the end of the previous transaction.
    """

    def __init__(
        self,
        config: ProducerConfig,
        producer: ProducerState,
        coordinators: CoordinatorRequests,
        topic_ids: TopicIdLookup,
        rng: random.Random,
    ) -> None:
        assert config.transactional_id is not None
        self._topic_ids = topic_ids
        self.v2: bool = False
        self.added: set[TopicPartition] = set()
        self.to_add: set[TopicPartition] = set()
        self.perhaps_begun: bool = False
        self._id = config.transactional_id
        self._client_id = config.client_id
        self._timeout_ms = config.transaction_timeout_ms
        self._producer = producer
        self._calls = CoordinatorCalls(config, coordinators, rng)
        self.previous: PreviousEnd = PreviousEnd(config.transactional_id, coordinators)
        self._v2_seen = False
        self._opener: CoordinatorCall[Any] | None = (
            None  # the newest request of the first protocol that opens a transaction
        )
        # Of the previous transaction: such a request, if a late copy of it may still arrive, and
        # whether a late copy of EndTxn may.
        self._late_opener: CoordinatorCall[Any] | None = None
        self._late_end = False
        # In the current epoch: whether a transaction was opened before the request for the next
        # epoch, and whether the next epoch was requested.
        self._reopened = self._asked = False
        self.begun: bool = False

    def batch_sent(self) -> None:
        """Note that records are sent, which may open the transaction."""
        if not self.perhaps_begun:
            self.previous.first_sent(_now())
        self.perhaps_begun = True

    def batch_stored(self) -> None:
        """Note that records are stored, so the coordinator has the transaction."""
        if not self.begun:
            self.previous.stored(_now())
        self.begun = True

    @property
    def _identity(self) -> ProducerIdAndEpoch:
        assert self._producer.identity is not None
        return self._producer.identity

    async def initialize(self, attempts: Attempts) -> None:
        """Get a producer id, or the next epoch of the current one.

        Raises:
            FatalProducerError: if the coordinator refuses, and would refuse every later call.
            BrokerError, AuthenticationError: if it refuses, and may accept a later call.
        """
        old = self._producer.identity
        before = (
            None
            if self._late_opener is None or self._late_end
            else partial(self._reopen, self._late_opener, attempts)
        )
        try:
            reply = await self._ask_for_identity(attempts, old, before)
        except ProducerFencedError as error:
            if self._late_opener is None or old is None or not self._asked:
                raise
            if not self._reopened:
                what = (
                    "another producer uses it, or a late copy of a request of this one arrived at "
                    "the same time (possible before Kafka 4.0)"
                )
                raise ProducerFencedError(
                    error.code, f"transactional_id={self._id!r}: {what}; close this producer"
                ) from error
            # This producer has fenced itself, and no producer has got the next epoch.
            reply = await self._ask_for_identity(
                attempts, ProducerIdAndEpoch((old.producer_id, old.epoch + 1))
            )
        self._producer.adopt(ProducerIdAndEpoch((reply.producer_id, reply.producer_epoch)))
        self._calls.unanswered.clear()
        self._late_opener = None
        self.perhaps_begun = self._reopened = self._asked = False
        self.v2 = self._v2_seen
        log.log(
            logging.INFO if old is None else logging.DEBUG,
            "%s: transactional_id=%r has producer id %d, epoch %d, transaction protocol %d",
            self._client_id, self._id, reply.producer_id, reply.producer_epoch, 2 if self.v2 else 1,
        )  # fmt: skip

    async def _ask_for_identity(
        self,
        attempts: Attempts,
        present: ProducerIdAndEpoch | None,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> InitProducerIdResponse:
        def prepare(peer: Peer) -> _Prepared:
            self._v2_seen = requests.speaks_v2(peer)
            self._asked = True
            return requests.init_producer_id(peer, self._id, self._timeout_ms, present)

        call = CoordinatorCall(
            CoordinatorApi.INIT_PRODUCER_ID, prepare, _code, hurry=before is not None, before=before
        )
        reply: InitProducerIdResponse = await self._calls.perform(call, attempts)
        return reply

    async def _reopen(self, opener: CoordinatorCall[Any], attempts: Attempts) -> None:
        """Open a transaction before the request for the next epoch, because a late copy of a
        request may open one at any time (first protocol).

        A coordinator with an open transaction fences the current epoch, even for the producer that
        has it, and up to Kafka 3.9 forgets it. While the transaction is open, no other producer
        gets the epoch after that one, so this one can request it. Without an open transaction,
        another producer might have got it.

        Raises:
            ProducerFencedError: if another producer uses the transactional id. The request for an
                epoch does not affect its transaction.
        """
        try:
            await self._calls.perform(opener, attempts)
        except ProducerFencedError:
            if not self._asked:
                raise
        except (AbortableTransactionError, FatalProducerError):
            pass  # late copies are refused as well
        else:
            self._reopened = True

    async def add_partitions(self, attempts: Attempts, on_added: Callable[[], None]) -> None:
        """Add the partitions in ``to_add``, including those that are put there during the call."""
        while self.to_add:
            asked = sorted(self.to_add)
            self._opener = CoordinatorCall(
                CoordinatorApi.ADD_PARTITIONS,
                self._opening(_adding(self._id, asked)),
                _codes_of(asked),
                hurry=not self.added,
                topics=[tp.topic for tp in asked],
            )
            await self._calls.perform(self._opener, attempts)
            self.begun = True
            self.added.update(asked)
            self.to_add.difference_update(asked)
            on_added()

    async def commit_offsets(
        self,
        attempts: Attempts,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        """Add a group's offsets to the transaction."""
        if not self.v2:
            add = self._opening(
                lambda peer, identity: requests.add_offsets(
                    peer, self._id, identity, group.group_id
                )
            )
            self._opener = CoordinatorCall(
                CoordinatorApi.ADD_OFFSETS, add, _code, hurry=not self.added
            )
            await self._calls.perform(self._opener, attempts)
            self.begun = True
        elif self.previous.awaited:
            await self.previous.wait()
        ids = dict(self._topic_ids({tp.topic for tp in offsets}))
        commit = self._opening(
            lambda peer, identity: requests.commit_offsets(
                peer, self._id, identity, offsets, group, ids, v2=self.v2
            )
        )

        def codes(reply: TxnOffsetCommitResponse) -> list[ErrorCode]:
            found = requests.codes_of_offsets(reply, offsets, ids)
            if ErrorCode.UNKNOWN_TOPIC_ID in found:
                ids.clear()  # the topic was made again: the next attempt names it
            return found

        call = CoordinatorCall(
            CoordinatorApi.COMMIT_OFFSETS,
            commit,
            codes,
            group_id=group.group_id,
            topics=[tp.topic for tp in offsets],
        )
        await self._calls.perform(call, attempts)
        self.begun = True

    def _opening(
        self, make: Callable[[Peer, ProducerIdAndEpoch], _Prepared]
    ) -> Callable[[Peer], _Prepared]:
        """Return ``make`` for the current producer id and epoch. It notes that the request may open
        the transaction, with or without a reply.
        """

        def prepare(peer: Peer) -> _Prepared:
            self.perhaps_begun = True
            return make(peer, self._identity)

        return prepare

    async def end(self, attempts: Attempts, *, commit: bool) -> None:
        """Commit or abort, unless nothing was sent. In the second protocol the reply contains the
        next epoch.
        """

        def prepare(peer: Peer) -> _Prepared:
            self._v2_seen = requests.speaks_v2(peer)
            return requests.end(peer, self._id, self._identity, commit=commit, v2=self.v2)

        if not self.perhaps_begun:
            return
        asked_at = _now()
        try:
            reply = await self._calls.perform(
                CoordinatorCall(CoordinatorApi.END, prepare, _code), attempts
            )
        except AbortableTransactionError as error:
            if commit:
                raise
            if error.code != ErrorCode.UNKNOWN_PRODUCER_ID:
                # An abort that requires an abort would repeat forever (KAFKA-19250).
                raise FatalProducerError(
                    error.code,
                    f"transactional_id={self._id!r}: the abort failed, close this producer",
                ) from error
            self._producer.request_epoch()
        except FatalProducerError as error:
            if error.code == ErrorCode.PRODUCER_FENCED and self.v2 and not (commit or self.begun):
                # A coordinator that still writes the markers of the previous transaction replies
                # this too, and nothing of the current one may have reached it. The reply to the
                # request for the next epoch shows whether another producer uses the transactional
                # id.
                self._producer.request_epoch()
                return
            if error.code != ErrorCode.INVALID_TXN_STATE:
                raise
            if commit and self.v2:
                # It is certainly not committed: the coordinator has aborted it, because it was open
                # for too long. Java fails the producer here, although an abort would return the
                # next epoch.
                raise AbortableTransactionError(
                    error.code,
                    f"transactional_id={self._id!r}: call abort_transaction(); it was open longer "
                    f"than transaction_timeout_ms={self._timeout_ms}",
                ) from error
            if commit or self.begun:
                raise
            # The request that might have opened the transaction did not: no abort is needed.
        else:
            if self.v2:
                self.previous.ended(asked_at, _now())
            if reply.producer_id >= 0:
                self._producer.adopt(ProducerIdAndEpoch((reply.producer_id, reply.producer_epoch)))

    def prepared(self) -> PreparedTransaction | None:
        """Return the data with which another process can end the transaction; None if nothing was
        sent.
        """
        return (
            PreparedTransaction(self._id, *self._identity, self.v2) if self.perhaps_begun else None
        )

    def forget_transaction(self) -> None:
        """Clear the state of a transaction that has ended."""
        self.begun = self.perhaps_begun = False
        self.added.clear()
        self.to_add.clear()
        if self._calls.unanswered and not self.v2:
            # A late copy, especially of EndTxn, would affect the next transaction. Only a new epoch
            # prevents that (KIP-890).
            self._producer.request_epoch()
            self._late_opener = (
                None if self._calls.unanswered.isdisjoint(_OPENERS) else self._opener
            )
            self._late_end = CoordinatorApi.END in self._calls.unanswered
        if self._v2_seen and not self.v2:
            # The cluster has switched to the second protocol, which starts with an epoch that the
            # first has not used.
            self._producer.request_epoch()
        self.v2 = self.v2 and self._v2_seen
        self._calls.unanswered.clear()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _adding(
    transactional_id: str, asked: list[TopicPartition]
) -> Callable[[Peer, ProducerIdAndEpoch], _Prepared]:
    return lambda peer, identity: requests.add_partitions(peer, transactional_id, identity, asked)


def _codes_of(asked: list[TopicPartition]) -> Callable[[Any], Iterable[ErrorCode]]:
    return lambda reply: requests.codes_of_partitions(reply, asked)


def _code(reply: Any) -> list[ErrorCode]:
    return [ErrorCode.of(reply.error_code)]
