"""The producer: from ``send`` to the acknowledged record."""

import typing as _typing

from aioprod.lazy_names import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from aioprod.producer.deliveries import Deliveries
    from aioprod.producer.delivery import Delivery
    from aioprod.producer.partitioner import (
        Partitioner,
        Partitions,
        RoundRobinPartitioner,
        partition_for_key,
    )
    from aioprod.producer.producer import Producer

__all__ = [
    "Deliveries",
    "Delivery",
    "Partitioner",
    "Partitions",
    "Producer",
    "RoundRobinPartitioner",
    "partition_for_key",
]

_HOMES = {
    "Deliveries": "aioprod.producer.deliveries",
    "Delivery": "aioprod.producer.delivery",
    "Partitioner": "aioprod.producer.partitioner",
    "Partitions": "aioprod.producer.partitioner",
    "Producer": "aioprod.producer.producer",
    "RoundRobinPartitioner": "aioprod.producer.partitioner",
    "partition_for_key": "aioprod.producer.partitioner",
}

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(globals(), _HOMES)
