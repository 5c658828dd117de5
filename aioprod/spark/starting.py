"""Connecting where brokers may be away for a moment."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aioprod.config import ClientConfig
from aioprod.errors import BrokerConnectionError
from aioprod.net.backoff import Backoff

if TYPE_CHECKING:
    from aioprod.producer.producer import Producer  # a task that reads does not pay for importing it


async def start_producer(producer: Producer) -> None:
    """Start a producer, for as long as it would wait for brokers anywhere else: `max_block_ms`.

    Raises:
        KafkaError: as `start_patiently` does.
    """
    await start_patiently(producer.start, producer.config, producer.config.max_block_ms / 1000)


async def start_patiently(start: Callable[[], Awaitable[None]], config: ClientConfig, limit_s: float) -> None:
    """Start a client, again and again while no broker answers.

    Raises:
        BrokerConnectionError: none did within the limit.
        KafkaError: one answered, and takes no client like this.
    """
    backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.Random())
    deadline = asyncio.get_running_loop().time() + limit_s
    for failures in itertools.count(1):
        try:
            return await start()
        except BrokerConnectionError:
            pause = backoff.seconds(failures)
            if asyncio.get_running_loop().time() + pause >= deadline:
                raise
            await asyncio.sleep(pause)
