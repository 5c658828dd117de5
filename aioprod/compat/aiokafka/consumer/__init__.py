"""``aiokafka.consumer``."""

from aioprod.compat.aiokafka.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
