"""The error that ends a processor."""

from __future__ import annotations

from aioprod import KafkaError, TopicPartition
from aioprod.public_module import set_module


@set_module("aioprod.processing")
class ProcessingError(KafkaError):
    """A record was not processed, and nothing may skip it: the processor has stopped. Its cause is
    the error of the handler, of the deserializer, or of a send.

    Attributes:
        topic_partition, offset: the place of the record. It is not committed.
    """

    def __init__(self, message: str, topic_partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset
