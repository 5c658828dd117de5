"""Members of the classic protocol in a group of the consumer protocol, while a group is migrated
(KIP-848).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aioprod.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from aioprod.types import TopicPartition
from tests.testing.raw_epoch_group import Answer, EpochScene, Place
from tests.testing.raw_group import RawMember


class MigratingMember:
    """A consumer of the classic protocol, whose requests are sent by hand.

    Attributes:
        owned: the partitions that it had at its last SyncGroup.
    """

    def __init__(self, scene: EpochScene, member: RawMember, *, version: int = 3) -> None:
        self.scene = scene
        self.raw = member
        self.version = version
        self.owned: list[Place] = []

    def subscribe(self, *topics: str, owned: Sequence[Place] | None = None) -> None:
        """Set the metadata of the next JoinGroup; without ``owned``, it has what it had."""
        has = self.owned if owned is None else owned
        places = tuple(TopicPartition(self.scene.topic(topic), number) for topic, number in has)
        names = tuple(self.scene.topic(topic) for topic in topics or ("t",))
        metadata = encode_subscription(Subscription(names, owned=places), self.version)
        self.raw.protocols = [("range", metadata)]

    async def join(self, *topics: str, owned: Sequence[Place] | None = None) -> Answer:
        """Send JoinGroup, twice if it needs an id; leave out the members."""
        self.subscribe(*topics, owned=owned)
        return (await self.raw.join_twice())[:6]

    async def sync(self, *, share: Sequence[RawMember] = (), **fields: Any) -> Answer:
        """Send SyncGroup, as the leader with the shares of all; note the partitions."""
        shares = {
            each.member_id: encode_assignment(
                Assignment(
                    tuple(
                        TopicPartition(self.scene.topic("t"), number)
                        for number in range(12)
                        if number % len(share) == index
                    )
                )
            )
            for index, each in enumerate(share)
        }
        code, *names, assignment = await self.raw.sync(shares, **fields)
        assert isinstance(assignment, bytes)
        if code == "NONE":
            self.owned = self._plain(decode_assignment(assignment))
        return code, *names, assignment[:2], self.owned

    def _plain(self, assignment: Assignment) -> list[Place]:
        prefix = self.scene.topic("")
        return sorted((topic.removeprefix(prefix), n) for topic, n in assignment.partitions)

    async def until_idle(self) -> list[object]:
        """Send Heartbeat, and JoinGroup and SyncGroup if it has to rejoin."""
        answers: list[object] = [await self.raw.heartbeat()]
        if answers[0] == "REBALANCE_IN_PROGRESS":
            answers += [await self.join(), await self.sync()]
        return answers
