"""Writes down what the embedded cluster does with the records of a share group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from aioprod.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.epoch_groups.modern import Beat
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.share_groups.dead_records import REJECTED, DeadRecord
from aioprod.testing.broker.share_groups.records import (
    DONE,
    Acknowledge,
    Acknowledgements,
    Acquired,
    InFlight,
    RecordState,
)
from aioprod.testing.broker.share_groups.share_partition import SharePartition
from aioprod.testing.broker.share_groups.share_partitions import Shared, ShareKey
from tests.simulation.shares import history as events
from tests.simulation.shares.history import Place, Reason, ShareHistory
from tests.simulation.shares.scenario import GROUP

_METHODS = ("acquire", "acknowledge", "release", "expire", "reload")


class BrokerWatch:
    """Listens to the state of the group's partitions, whose methods it replaces.

    Attributes:
        owners: the member of each id.
    """

    def __init__(self, cluster: EmbeddedCluster, history: ShareHistory) -> None:
        self.owners: dict[str, str] = {}
        self._cluster = cluster
        self._history = history
        self._shares = cluster._store.shares
        self._watched: dict[int, SharePartition] = {}  # by id; kept, so that ids are not reused
        self._shares.undertakers.append(self._dead)
        groups = cluster._store.groups
        vars(groups)["share_heartbeat"] = partial(self._heartbeat, groups.share_heartbeat)
        vars(self._shares)["open"] = partial(self._open, self._shares.open)

    def undone(self) -> list[Place]:
        """Return the records that the group is not done with."""
        done: set[Place] = set()
        for shared in self._shares.of_group(GROUP):
            if shared.state is not None:
                tp = self._partition(shared.key)
                done.update((*tp, offset) for offset in range(shared.state.start_offset))
        done.update(place for place, record in self._records() if record.state in DONE)
        return sorted(self._history.logged - done)

    def lock_owners(self) -> set[str]:
        """Return the members for which records are locked."""
        return {
            self.owners[record.member_id]
            for _, record in self._records()
            if record.state is RecordState.ACQUIRED
        }

    def _records(self) -> Iterator[tuple[Place, InFlight]]:
        for shared in self._shares.of_group(GROUP):
            for offset, record in shared.state.records() if shared.state is not None else ():
                yield (*self._partition(shared.key), offset), record

    def _partition(self, key: ShareKey) -> tuple[str, int]:
        topics = self._cluster.topics.values()
        return next(each.name for each in topics if each.topic_id == key.topic_id), key.partition

    # -- what the broker does ----------------------------------------------------------------------

    def _heartbeat(
        self,
        original: Callable[[ShareGroupHeartbeatRequest, Caller], Beat],
        request: ShareGroupHeartbeatRequest,
        caller: Caller,
    ) -> Beat:
        self.owners[request.member_id] = caller.client_id
        return original(request, caller)

    def _open(
        self,
        original: Callable[[ShareKey, Partition], tuple[Shared, SharePartition]],
        key: ShareKey,
        log: Partition,
    ) -> tuple[Shared, SharePartition]:
        shared, state = original(key, log)
        if key.group_id == GROUP and id(state) not in self._watched:
            self._watched[id(state)] = state
            for method in _METHODS:
                replaced = getattr(self, f"_{method}")
                vars(state)[method] = partial(replaced, self._partition(key), state)
        return shared, state

    def _acquire(
        self, tp: tuple[str, int], state: SharePartition, member_id: str, *rest: Any, **more: Any
    ) -> list[Acquired]:
        runs = SharePartition.acquire(state, member_id, *rest, **more)
        for first, last, count in runs:
            for offset in range(first, last + 1):
                place = (*tp, offset)
                self._history.add(events.Acquired(self.owners[member_id], place, count))
        return runs

    def _acknowledge(
        self,
        tp: tuple[str, int],
        state: SharePartition,
        member_id: str,
        runs: Sequence[Acknowledgements],
        *rest: Any,
    ) -> None:
        member = self.owners[member_id]
        own = {offset for offset, record in state.records() if record.member_id == member_id}
        said = {o: run.type_of(o) for run in runs for o in range(run.first, run.last + 1)}
        for offset in sorted(said.keys() - own):
            self._history.add(events.Late(member, (*tp, offset)))
        try:
            SharePartition.acknowledge(state, member_id, runs, *rest)
        except RequestError as error:
            self._history.note(f"{member}: acknowledgements are refused: {error}", member)
            raise
        for offset in sorted(said.keys() & own):
            self._history.add(events.Applied(member, (*tp, offset), Acknowledge(said[offset])))

    def _release(self, tp: tuple[str, int], state: SharePartition, *rest: Any) -> None:
        self._freed(tp, state, lambda each: each.member_id == rest[0], Reason.SESSION)
        SharePartition.release(state, *rest)

    def _expire(self, tp: tuple[str, int], state: SharePartition, now: float, *rest: Any) -> None:
        self._freed(tp, state, lambda each: each.locked_until <= now, Reason.LOCK)
        SharePartition.expire(state, now, *rest)

    def _reload(self, tp: tuple[str, int], state: SharePartition) -> None:
        self._freed(tp, state, lambda _: True, Reason.LEADER)
        SharePartition.reload(state)

    def _freed(
        self,
        tp: tuple[str, int],
        state: SharePartition,
        chosen: Callable[[InFlight], bool],
        reason: Reason,
    ) -> None:
        for offset, record in state.records():
            if record.state is RecordState.ACQUIRED and chosen(record):
                owner = self.owners[record.member_id]
                self._history.add(events.Freed(owner, (*tp, offset), reason))

    def _dead(self, key: ShareKey, dead: list[DeadRecord]) -> None:
        for record in dead if key.group_id == GROUP else ():
            place = (*self._partition(key), record.offset)
            is_rejected = record.reason == REJECTED
            self._history.add(events.Dead("broker", place, record.delivery_count, is_rejected))
