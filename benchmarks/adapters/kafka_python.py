"""kafka-python 3: a synchronous producer, with an event loop thread. Its memory is unlimited."""

from __future__ import annotations

from typing import Any, ClassVar

from benchmarks import builds
from benchmarks.adapters.adapter import Feature
from benchmarks.adapters.settings import Load, Settings

_LIMIT_S = 120


class KafkaPython:
    """``producer.send(...)`` in a loop."""

    name: ClassVar[str] = "kafka-python"
    lacks: ClassVar[frozenset[Feature]] = frozenset({"many tasks"})
    producer: Any

    def describe(self) -> str:
        return builds.package("kafka-python")

    async def start(self, settings: Settings) -> None:
        from kafka import KafkaProducer  # so that a worker imports only its client

        self.producer = KafkaProducer(
            bootstrap_servers=settings.bootstrap_servers,
            acks="all" if settings.acks == "all" else int(settings.acks),
            enable_idempotence=settings.idempotent,
            linger_ms=settings.linger_ms,
            batch_size=settings.batch_size,
            compression_type=None
            if settings.compression_type == "none"
            else settings.compression_type,
        )

    async def stop(self) -> None:
        self.producer.close(timeout=_LIMIT_S)

    async def send_all(self, load: Load) -> None:
        headers = load.each_headers()
        send, topic = self.producer.send, load.topic
        if headers:
            futures = [send(topic, value, key, headers) for key, value in load.keyed_values()]
        else:
            futures = [send(topic, value, key) for key, value in load.keyed_values()]
        for future in futures:
            future.get(timeout=_LIMIT_S)

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None) -> None:
        self.producer.send(topic, value, key).get(timeout=_LIMIT_S)
