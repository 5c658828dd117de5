"""aiokafka: Python, with a C extension for record batches. Its memory is unlimited. The same calls
on aioprod, with aiokafka's names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from benchmarks import builds
from benchmarks.adapters.adapter import Feature
from benchmarks.adapters.awaited import send_in_groups
from benchmarks.adapters.settings import Load, Settings


class Aiokafka:
    """``await producer.send(...)`` in a loop."""

    name: ClassVar[str] = "aiokafka"
    package: ClassVar[str] = "aiokafka"
    lacks: ClassVar[frozenset[Feature]] = frozenset()
    producer: Any

    def describe(self) -> str:
        return builds.package("aiokafka")

    async def start(self, settings: Settings) -> None:
        client = import_module(self.package)  # so that a worker imports only its client
        own: dict[str, Any] = {
            "acks": "all" if settings.acks == "all" else int(settings.acks),
            "enable_idempotence": settings.idempotent,
            "linger_ms": settings.linger_ms,
            "max_batch_size": settings.batch_size,
            "compression_type": None
            if settings.compression_type == "none"
            else settings.compression_type,
        }
        self.producer = client.AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap_servers, **({} if settings.own_defaults else own)
        )
        await self.producer.start()

    async def stop(self) -> None:
        await self.producer.stop()

    async def send_all(self, load: Load) -> None:
        await send_in_groups(self.producer.send, load)

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None) -> None:
        await self.producer.send_and_wait(topic, value, key)


class AiokafkaNames(Aiokafka):
    """Like ``Aiokafka``, with ``aioprod.compat.aiokafka``."""

    name = "aioprod compat"
    package = "aioprod.compat.aiokafka"

    def describe(self) -> str:
        return f"aioprod {builds.aioprod()}"
