"""Finds the reason why a share consumer gets no records of a partition, or its acknowledgements
fail.
"""

from __future__ import annotations

from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.buffer import ShareBuffer
from aioprod.consumer.share.fetcher import ShareFetcher
from aioprod.consumer.share.member import ShareMember
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.stall_reasons import said
from aioprod.consumer.stall_watch import Waiting
from aioprod.types import TopicPartition


class ShareStallReasons:
    """Looks at the group and at all partitions."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        member: ShareMember,
        fetcher: ShareFetcher,
        assignment: ShareAssignment,
        buffer: ShareBuffer,
        outcomes: Outcomes,
    ) -> None:
        self._limit_s = config.stall_timeout_ms / 1000
        self._member = member
        self._fetcher = fetcher
        self._assignment = assignment
        self._buffer = buffer
        self._outcomes = outcomes

    def look(self, now: float) -> dict[TopicPartition | None, Waiting]:
        """Return what waits, and why."""
        waiting: dict[TopicPartition | None, Waiting] = {}
        if self._member.rebalancing or self._member.problem is not None:
            waiting[None] = Waiting(None, self._reason_of_group())
        # While no call waits nothing is fetched, so that no response shows that an error is solved.
        if now - self._fetcher.wanted_at < self._limit_s:
            for tp, error, since in self._assignment.errors():
                waiting[tp] = Waiting(since, said(error))
        for tp, refusals in self._outcomes.refusals(after=now - self._limit_s).items():
            if self.is_assigned(tp):
                reason = f"no acknowledgement is confirmed: {said(refusals.error)}"
                waiting.setdefault(tp, Waiting(refusals.since, reason))
        for tp, records in self._buffer.by_partition().items():
            if records:
                reason = f"no call asks for the fetched records ({records})"
                waiting.setdefault(tp, Waiting(self._buffer.returned, reason))
        return waiting

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Return True if a partition is still assigned."""
        return tp in self._assignment.partitions

    def _reason_of_group(self) -> str:
        if self._member.problem is not None:
            return f"the group can't be reached: {said(self._member.problem)}"
        if self._member.is_joining:
            return "the coordinator has not answered yet"
        return "no call asks for records, which joins the group"
