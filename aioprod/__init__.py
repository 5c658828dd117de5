"""aioprod: the asyncio-native Apache Kafka client."""

from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    AuthenticationError,
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
    ProducerFencedError,
    ProtocolError,
    RecordTooLargeError,
    RequestTimedOutError,
    SerializationError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedVersionError,
)
from aioprod.interceptors import ProducerInterceptor
from aioprod.metrics import ProducerObserver
from aioprod.producer.delivery import Delivery
from aioprod.producer.partitioner import Partitioner, Partitions, RoundRobinPartitioner
from aioprod.producer.producer import Producer
from aioprod.security import OAuthToken
from aioprod.serialization import BytesSerializer, JsonSerializer, Serializer, StringSerializer
from aioprod.types import ConsumerGroupMetadata, OffsetAndMetadata, ProducerRecord, RecordMetadata, TopicPartition

__all__ = [
    "AbortableTransactionError",
    "AuthenticationError",
    "BrokerConnectionError",
    "BrokerError",
    "BufferExhaustedError",
    "BytesSerializer",
    "ConfigError",
    "ConsumerGroupMetadata",
    "CorruptRecordError",
    "Delivery",
    "DeliveryTimeoutError",
    "ErrorCode",
    "FatalProducerError",
    "InvalidPartitionError",
    "InvalidTopicError",
    "JsonSerializer",
    "KafkaError",
    "KafkaTimeoutError",
    "MetadataTimeoutError",
    "OAuthToken",
    "OffsetAndMetadata",
    "Partitioner",
    "Partitions",
    "Producer",
    "ProducerClosedError",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerObserver",
    "ProducerRecord",
    "ProtocolError",
    "RecordMetadata",
    "RecordTooLargeError",
    "RequestTimedOutError",
    "RoundRobinPartitioner",
    "SerializationError",
    "Serializer",
    "StringSerializer",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionStateError",
    "UnsupportedVersionError",
]
