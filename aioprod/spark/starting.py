"""Connecting where brokers may be away for a moment."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aioprod.config.client import ClientConfig
from aioprod.errors import BrokerConnectionError, KafkaTimeoutError
from aioprod.net.backoff import Backoff
from aioprod.net.bounds import TimeLimit

if TYPE_CHECKING:
    from aioprod.producer.producer import (
        Producer,
    )  # a task that reads does not pay for importing it


async def start_producer(producer: Producer) -> None:
    """Start a producer, within `max_block_ms`, which is how long it waits for brokers anywhere
    else.

    Raises:
        KafkaError: as `start_patiently` does.
    """
    await start_patiently(
        producer.start, producer.config, producer.config.max_block_ms / 1000, "kafka.max.block.ms"
    )


async def start_patiently(
    start: Callable[[], Awaitable[None]], config: ClientConfig, limit_s: float, setting: str
) -> None:
    """Start a client within ``limit_s``, again and again while no broker answers.

    Raises:
        BrokerConnectionError: the last try that ended within the limit has failed.
        KafkaTimeoutError: the limit, that of ``setting``, has passed during the first.
        KafkaError: one answered, and takes no client like this.
    """
    backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.Random())
    deadline = asyncio.get_running_loop().time() + limit_s
    trouble: BrokerConnectionError | None = None
    try:
        async with TimeLimit(
            limit_s * 1000, f"connecting to {', '.join(config.bootstrap_servers)}", setting
        ):
            for failures in itertools.count(1):
                try:
                    return await start()
                except BrokerConnectionError as error:
                    trouble = error
                    pause = backoff.seconds(failures)
                    if asyncio.get_running_loop().time() + pause >= deadline:
                        raise
                    await asyncio.sleep(pause)
    except KafkaTimeoutError as error:
        if trouble is not None:  # it tells more
            raise trouble from error
        raise
