"""Assignors: the leader of a classic group calls one to share the partitions out to the members."""

from aioprod.consumer.group.assignors.assignor import (
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
)
from aioprod.consumer.group.assignors.choice import make_assignors, rebalance_protocol
from aioprod.consumer.group.assignors.cooperative import CooperativeStickyAssignor
from aioprod.consumer.group.assignors.range import RangeAssignor
from aioprod.consumer.group.assignors.roundrobin import RoundRobinAssignor
from aioprod.consumer.group.assignors.sticky import StickyAssignor

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "make_assignors",
    "rebalance_protocol",
]
