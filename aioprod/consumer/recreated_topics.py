"""Ends the positions of topics that were deleted and created again: a position belongs to a topic
id, and its offset says nothing about another topic with the same name.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict

from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.consumer import ConsumerConfig
from aioprod.config.offset_reset import NONE
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.problems import Problems
from aioprod.consumer.ready_records import ReadyRecords
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.subscription import FormerTopic, Mode, PartitionState, SubscriptionState
from aioprod.errors import TopicRecreatedError
from aioprod.logs import Logger, get_logger

log: Logger = get_logger(__name__)

_SHOWN = 10  # positions in a log line


class RecreatedTopics:
    """Compares the topics of each new snapshot with those that the positions belong to.

    Args:
        partitions: call the rebalance listener, in the membership's next step.
        ready: has the records that were read.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        problems: Problems,
        partitions: GroupPartitions,
        ready: ReadyRecords,
        reporter: ConsumerReporter,
    ) -> None:
        self._client_id = config.client_id
        self._reset = config.offset_reset
        self._subscription = subscription
        self._problems = problems
        self._partitions = partitions
        self._ready = ready
        self._reporter = reporter

    def apply(self, before: ClusterSnapshot, snapshot: ClusterSnapshot) -> None:
        """Restart partitions whose topic has another id than the one that they were read from."""
        recreated: defaultdict[str, list[PartitionState]] = defaultdict(list)
        for state in self._subscription.partitions.values():
            topic = state.tp.topic
            if state.position is None and state.reset is None:
                continue  # its committed offset will be that of the new topic
            if not state.topic_id.int:
                state.topic_id = before.topic_id(topic)  # the position was found under it
            if snapshot.has_other_topic(topic, state.topic_id):
                recreated[topic].append(state)
            elif (present := snapshot.topic_id(topic)).int:
                state.topic_id = present
        for topic, states in recreated.items():
            self._restart(topic, states, snapshot.topic_id(topic))

    def _restart(self, topic: str, states: list[PartitionState], present: uuid.UUID) -> None:
        former = states[0].topic_id
        for state in states:
            self._ready.take_back_from(state.tp)  # the positions are the application's then
        log.warning(
            "%s: topic %r was deleted and created again (topic id %s, before %s): partitions (%s) "
            "%s",
            self._client_id,
            topic,
            present,
            former,
            _offsets(states),
            "are not read until seek is called (auto_offset_reset=none)"
            if self._reset.strategy == NONE
            else f"continue by auto_offset_reset={self._reset.strategy}",
        )
        partitions = [state.tp for state in states]
        for state in states:
            self._restart_partition(state, present)
        self._reporter.topic_recreated(topic, partitions, former, present)
        if self._subscription.mode is not Mode.ASSIGNED:
            self._partitions.recreated(partitions)

    def _restart_partition(self, state: PartitionState, present: uuid.UUID) -> None:
        former, asked = FormerTopic(state.topic_id, state.offset), state.reset
        if asked is not None or self._reset.strategy != NONE:
            # The application may be seeking to the beginning or the end.
            self._subscription.seek_by([state.tp], asked or self._reset)
        else:
            error = _error(state, present)
            state.give_up(error)
            self._ready.drop(state.tp)
            self._problems.report(state.tp, error, asyncio.get_running_loop().time())
        state.topic_id, state.former = present, former


def _offsets(states: list[PartitionState]) -> str:
    """Return the positions in the deleted topic for the log."""
    shown = [f"{state.tp.partition} at offset {state.offset}" for state in states[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(states) - _SHOWN} more" if len(states) > _SHOWN else "")


def _error(state: PartitionState, present: uuid.UUID) -> TopicRecreatedError:
    tp = state.tp
    return TopicRecreatedError(
        f"topic {tp.topic!r} was deleted and created again (topic id {present}, before "
        f"{state.topic_id}), auto_offset_reset is 'none', and {tp.topic}-{tp.partition} was at "
        f"offset {state.offset} of the deleted topic; seek to the offset at which to begin",
        tp,
        state.offset,
        state.topic_id,
        present,
    )
