"""Known bugs of share consumers, each a patch that plants one. The simulation must find each of
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aioprod.consumer.share import buffer, requests
from aioprod.consumer.share.acknowledgements import (
    GAP,
    Acknowledgements,
    PartitionAcknowledgements,
)
from aioprod.consumer.share.broker import ShareBroker
from aioprod.consumer.share.buffer import ShareBuffer
from aioprod.consumer.share.calls import AcknowledgementCalls, RecordCalls
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.session import ShareSession
from aioprod.consumer.share.unacknowledged import LockRenewal, UnacknowledgedRecords
from aioprod.errors import KafkaError
from aioprod.types import AcknowledgeType, ConsumerRecord, ShareRecord, TopicPartition
from tests.simulation.planting import Mutation, Patch, into

SHARE_MUTATIONS: list[Mutation] = []
mutation = into(SHARE_MUTATIONS)


# -- acknowledgements ------------------------------------------------------------------------------


@mutation("no-outcome", found_by=6)
def a_refused_acknowledgement_is_not_sent_again(patch: Patch) -> None:
    patch.setattr(Acknowledgements, "put_back", lambda *arguments: None)


@mutation("lost-acknowledgement", found_by=1)
def an_acknowledgement_without_a_response_is_confirmed(patch: Patch) -> None:
    def failed(
        self: Outcomes,
        tp: TopicPartition,
        types: Mapping[int, AcknowledgeType],
        error: KafkaError,
        since: float,
    ) -> None:
        self.confirmed(tp, types, since)

    patch.setattr(Outcomes, "failed", failed)


@mutation("failed-call", found_by=0)
def commit_hides_what_failed_before(patch: Patch) -> None:
    commit = AcknowledgementCalls.commit

    async def forget_and_commit(
        self: AcknowledgementCalls, timeout_ms: float | None
    ) -> dict[TopicPartition, KafkaError | None]:
        self._outcomes.take()
        return await commit(self, timeout_ms)

    patch.setattr(AcknowledgementCalls, "commit", forget_and_commit)


@mutation("sent-too-late", found_by=7)
def acknowledgements_are_sent_after_the_lock_has_ended(patch: Patch) -> None:
    def pop_late(self: PartitionAcknowledgements, now: float) -> PartitionAcknowledgements:
        return PartitionAcknowledgements(self.since)

    patch.setattr(PartitionAcknowledgements, "pop_late", pop_late)


@mutation("failed-acknowledgement", found_by=7)
def the_last_acknowledgements_are_not_sent(patch: Patch) -> None:
    async def close(self: ShareBroker) -> None:
        self._closing = True

    patch.setattr(ShareBroker, "close", close)


@mutation("unwanted", "failed-call", found_by=9)
def a_cancelled_call_loses_its_records(patch: Patch) -> None:
    original = RecordCalls.getmany

    async def getmany(self: RecordCalls, *arguments: Any) -> list[ShareRecord]:
        records = await original(self, *arguments)
        await asyncio.sleep(0.001 if records else 0)
        return records

    patch.setattr(RecordCalls, "getmany", getmany)


# -- locks and sessions ----------------------------------------------------------------------------


@mutation("handed-too-late", found_by=7)
def records_are_returned_whose_lock_has_ended(patch: Patch) -> None:
    patch.setattr(ShareBuffer, "_is_locked", lambda self, fetched, now: fetched.is_in_session)


@mutation("handed-too-late", found_by=14)
def records_of_a_lost_session_are_returned(patch: Patch) -> None:
    patch.setattr(ShareBuffer, "forget", lambda self, node_id: None)


@mutation("failed-call", "lost-acknowledgement", "sent-twice", found_by=1)
def the_generation_of_a_session_is_not_checked(patch: Patch) -> None:
    original = ShareBroker.acknowledge

    def acknowledge(
        self: ShareBroker, partition: Any, offsets: Any, kind: Any, generation: int, until: float
    ) -> None:
        original(self, partition, offsets, kind, self.session.generation, until)

    patch.setattr(ShareBroker, "acknowledge", acknowledge)


@mutation("not-renewed", "failed-acknowledgement", found_by=14)
def the_new_end_of_a_lock_is_not_noted(patch: Patch) -> None:
    patch.setattr(UnacknowledgedRecords, "renewed", lambda *arguments: None)


@mutation("leak", found_by=1)
def renewals_go_on_after_the_close(patch: Patch) -> None:
    patch.setattr(LockRenewal, "stop", lambda self: None)


@mutation("not-live", "failed-call", found_by=6)
def a_lost_session_is_not_begun_again(patch: Patch) -> None:
    def lost(self: ShareSession) -> None:
        self.partitions = frozenset()
        self.generation += 1

    patch.setattr(ShareSession, "lost", lost)


# -- records ---------------------------------------------------------------------------------------


@mutation("invented", "handed-twice", found_by=7)
def records_of_other_members_are_returned(patch: Patch) -> None:
    def pick(
        found: Sequence[ConsumerRecord],
        starts: Any,
        ranges: Any,
        records: list[ConsumerRecord],
        counts: list[int],
    ) -> None:
        records += found
        counts += [1] * len(found)

    patch.setattr(requests, "_pick", pick)


@mutation("wrong-count", found_by=1)
def delivery_counts_are_those_of_the_first_delivery(patch: Patch) -> None:
    original = buffer.with_counts

    def with_counts(records: Sequence[ConsumerRecord], counts: list[int]) -> list[ShareRecord]:
        return original(records, [1] * len(counts))

    patch.setattr(buffer, "with_counts", with_counts)


@mutation("lost", found_by=5)
def records_that_are_not_read_are_reported_as_gaps(patch: Patch) -> None:
    original = ShareBroker.skip

    def skip(self: ShareBroker, partition: Any, runs: Any, kind: int, until: float) -> None:
        original(self, partition, runs, GAP, until)

    patch.setattr(ShareBroker, "skip", skip)
