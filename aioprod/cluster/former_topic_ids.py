"""Distinguishes a topic that was created again from the old metadata of a broker that is late."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from aioprod.cluster.snapshot import ClusterSnapshot

# How long a broker may be late. Brokers of a KRaft cluster are late by milliseconds; the limit is
# for the case that the late metadata came first, and were taken for the newer ones.
_LATE_S = 10.0


class FormerTopicIds:
    """The ids of topics that were deleted and created again. An id is never used a second time, so
    metadata with one of them are older than those with the present one.
    """

    def __init__(self) -> None:
        self._present: dict[str, uuid.UUID] = {}
        self._former: dict[uuid.UUID, float] = {}  # loop time until which a broker may name it

    def late(self, now: float) -> frozenset[uuid.UUID]:
        """Return the ids that only late metadata contain."""
        if not self._former:
            return frozenset()
        self._former = {known: until for known, until in self._former.items() if now < until}
        return frozenset(self._former)

    def last_known(self, names: Collection[str]) -> dict[str, uuid.UUID]:
        """Return the ids of topics, of a deleted one that which it had; none if one is unknown."""
        found = {name: self._present[name] for name in names if name in self._present}
        return found if len(found) == len(names) else {}

    def note(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Note the topics of a snapshot. One that is deleted has no id there; the last one counts
        until it is created again.
        """
        present = self._present
        self._present = {}
        for name, info in snapshot.topics.items():
            known = present.get(name)
            topic_id = info.topic_id if info.topic_id.int else known
            if topic_id is None:
                continue
            self._present[name] = topic_id
            if known is not None and known != topic_id:
                self._former[known] = now + _LATE_S
                self._former.pop(topic_id, None)
