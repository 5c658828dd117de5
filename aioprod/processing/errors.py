"""The error that ends a processor."""

from __future__ import annotations

from aioprod import KafkaError, TopicPartition
from aioprod.public_module import set_module


@set_module("aioprod.processing")
class ProcessingError(KafkaError):
    """A record could not be processed, and must not be skipped: the processor has stopped. The
    cause is the error of the handler, of the deserializer, or of a send.

    Attributes:
        topic_partition, offset: where the record is. It is not committed.
    """

    def __init__(self, message: str, topic_partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset
