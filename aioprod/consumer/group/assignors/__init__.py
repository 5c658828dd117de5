"""Who reads which partition: functions over what the members of a group bring, computed by the
group's leader.
"""

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
