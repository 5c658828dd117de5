"""``aiokafka.producer``."""

from aioprod.compat.aiokafka.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
