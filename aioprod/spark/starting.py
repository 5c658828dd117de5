"""Starts clients while brokers may be temporarily unavailable."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aioprod.cluster.retry import RetryLimit, retry
from aioprod.config.client import ClientConfig
from aioprod.errors import BrokerConnectionError, KafkaError, KafkaTimeoutError
from aioprod.net.backoff import Backoff
from aioprod.spark.waiting import named_wait

if TYPE_CHECKING:
    # Imported on demand: tasks that only read do not need it.
    from aioprod.producer.producer import Producer


async def start_producer(producer: Producer) -> None:
    """Start a producer, within `max_block_ms`, which also limits its other waits for brokers.

    Raises:
        KafkaError: see `start_patiently`.
    """
    await start_patiently(
        producer.start, producer.config, producer.config.max_block_ms / 1000, "kafka.max.block.ms"
    )


async def start_patiently(
    start: Callable[[], Awaitable[None]], config: ClientConfig, limit_s: float, setting: str
) -> None:
    """Start a client within ``limit_s``, with retries while no broker responds.

    Raises:
        BrokerConnectionError: if the last attempt that ended within the limit has failed.
        KafkaTimeoutError: if the limit, that of ``setting``, has passed during the first attempt.
        KafkaError: if a broker responded and does not accept this client.
    """
    backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.Random())
    last_error: KafkaError | None = None

    def remember(error: KafkaError, failures: int) -> None:
        nonlocal last_error
        last_error = error

    limit = RetryLimit(
        limit_s * 1000, f"connecting to {', '.join(config.bootstrap_servers)}", setting
    )
    try:
        with named_wait(limit.what, setting):
            await retry(
                start,
                backoff.seconds,
                is_retriable=lambda error: isinstance(error, BrokerConnectionError),
                limit=limit,
                on_failure=remember,
            )
    except KafkaTimeoutError as error:
        if last_error is not None:  # it is more informative
            raise last_error from error
        raise
