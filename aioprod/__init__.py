"""aioprod: the asyncio-native Apache Kafka client."""

import typing as _typing

from aioprod.lazy_names import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
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
    from aioprod.producer.deliveries import Deliveries
    from aioprod.producer.delivery import Delivery
    from aioprod.producer.partitioner import Partitioner, Partitions, RoundRobinPartitioner
    from aioprod.producer.producer import Producer
    from aioprod.security import OAuthToken
    from aioprod.serialization import BytesSerializer, JsonSerializer, Serializer, StringSerializer
    from aioprod.types import ConsumerGroupMetadata, OffsetAndMetadata, PreparedTransaction, ProducerRecord, RecordMetadata, TopicPartition

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
    "Deliveries",
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
    "PreparedTransaction",
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

_HOMES = {
    "AbortableTransactionError": "aioprod.errors",
    "AuthenticationError": "aioprod.errors",
    "BrokerConnectionError": "aioprod.errors",
    "BrokerError": "aioprod.errors",
    "BufferExhaustedError": "aioprod.errors",
    "BytesSerializer": "aioprod.serialization",
    "ConfigError": "aioprod.errors",
    "ConsumerGroupMetadata": "aioprod.types",
    "CorruptRecordError": "aioprod.errors",
    "Deliveries": "aioprod.producer.deliveries",
    "Delivery": "aioprod.producer.delivery",
    "DeliveryTimeoutError": "aioprod.errors",
    "ErrorCode": "aioprod.error_codes",
    "FatalProducerError": "aioprod.errors",
    "InvalidPartitionError": "aioprod.errors",
    "InvalidTopicError": "aioprod.errors",
    "JsonSerializer": "aioprod.serialization",
    "KafkaError": "aioprod.errors",
    "KafkaTimeoutError": "aioprod.errors",
    "MetadataTimeoutError": "aioprod.errors",
    "OAuthToken": "aioprod.security",
    "OffsetAndMetadata": "aioprod.types",
    "Partitioner": "aioprod.producer.partitioner",
    "Partitions": "aioprod.producer.partitioner",
    "PreparedTransaction": "aioprod.types",
    "Producer": "aioprod.producer.producer",
    "ProducerClosedError": "aioprod.errors",
    "ProducerFencedError": "aioprod.errors",
    "ProducerInterceptor": "aioprod.interceptors",
    "ProducerObserver": "aioprod.metrics",
    "ProducerRecord": "aioprod.types",
    "ProtocolError": "aioprod.errors",
    "RecordMetadata": "aioprod.types",
    "RecordTooLargeError": "aioprod.errors",
    "RequestTimedOutError": "aioprod.errors",
    "RoundRobinPartitioner": "aioprod.producer.partitioner",
    "SerializationError": "aioprod.errors",
    "Serializer": "aioprod.serialization",
    "StringSerializer": "aioprod.serialization",
    "TopicPartition": "aioprod.types",
    "TransactionAbortedError": "aioprod.errors",
    "TransactionStateError": "aioprod.errors",
    "UnsupportedVersionError": "aioprod.errors",
}

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(globals(), _HOMES)
