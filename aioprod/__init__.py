"""aioprod: the asyncio-native Apache Kafka client."""

from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerConnectionError,
    BrokerError,
    BufferExhaustedError,
    ConfigError,
    CorruptRecordError,
    DeliveryTimeoutError,
    FatalProducerError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProtocolError,
    RecordTooLargeError,
    RequestTimedOutError,
    SerializationError,
    UnsupportedVersionError,
)
from aioprod.producer.batch import Delivery
from aioprod.producer.partitioner import Partitioner
from aioprod.producer.producer import Producer
from aioprod.types import RecordMetadata, TopicPartition

__all__ = [
    "BrokerConnectionError",
    "BrokerError",
    "BufferExhaustedError",
    "ConfigError",
    "CorruptRecordError",
    "Delivery",
    "DeliveryTimeoutError",
    "ErrorCode",
    "FatalProducerError",
    "InvalidPartitionError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaTimeoutError",
    "MetadataTimeoutError",
    "Partitioner",
    "Producer",
    "ProducerClosedError",
    "ProtocolError",
    "RecordMetadata",
    "RecordTooLargeError",
    "RequestTimedOutError",
    "SerializationError",
    "TopicPartition",
    "UnsupportedVersionError",
]
