"""Reads records: the consumer with its groups, the share consumer, and below them a reader of
single partitions.
"""

import typing as _typing

from aioprod.lazy_names import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from aioprod.consumer.consumer import Consumer
    from aioprod.consumer.group.assignors import Assignor, MemberSubscription, RebalanceProtocol
    from aioprod.consumer.rebalance_listener import RebalanceListener
    from aioprod.consumer.share.share_consumer import ShareConsumer
    from aioprod.consumer.state import ConsumerState, ConsumerStatus

__all__ = [
    "Assignor",
    "Consumer",
    "ConsumerState",
    "ConsumerStatus",
    "MemberSubscription",
    "RebalanceListener",
    "RebalanceProtocol",
    "ShareConsumer",
]

_HOMES = {
    "Assignor": "aioprod.consumer.group.assignors",
    "Consumer": "aioprod.consumer.consumer",
    "ConsumerState": "aioprod.consumer.state",
    "ConsumerStatus": "aioprod.consumer.state",
    "MemberSubscription": "aioprod.consumer.group.assignors",
    "RebalanceListener": "aioprod.consumer.rebalance_listener",
    "RebalanceProtocol": "aioprod.consumer.group.assignors",
    "ShareConsumer": "aioprod.consumer.share.share_consumer",
}

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(globals(), _HOMES)
