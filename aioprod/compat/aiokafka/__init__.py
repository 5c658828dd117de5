"""aiokafka's API, implemented on aioprod: its names, settings and errors.

Import names from here in place of ``aiokafka``. For programs that can't be changed, call
:func:`install` before they are imported: ``import aiokafka`` then means this package.
"""

from __future__ import annotations

from aioprod.compat.aiokafka.abc import ConsumerRebalanceListener
from aioprod.compat.aiokafka.consumer import AIOKafkaConsumer
from aioprod.compat.aiokafka.errors import ConsumerStoppedError, IllegalOperation
from aioprod.compat.aiokafka.installation import install
from aioprod.compat.aiokafka.producer import AIOKafkaProducer
from aioprod.compat.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

__version__ = "0.14.0"
"""The version of aiokafka that this package behaves like."""

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "install",
]
