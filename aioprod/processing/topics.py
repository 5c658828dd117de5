"""Checks that the topics exist that a processor sends failed records to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aioprod import ConfigError, MetadataTimeoutError, Producer

# Brokers that create topics automatically have done so by then.
_LIMIT_S = 10.0


async def check_topics_exist(producer: Producer, topics: Mapping[str, str]) -> None:
    """Check that topics exist, before a failed record needs one of them.

    The producer asks for them as it does when it sends, so a cluster that creates topics
    automatically creates them: metadata do not tell whether it is one.

    Args:
        topics: for each topic the setting that names it.

    Raises:
        ConfigError: if a topic does not exist.
        KafkaError: if it can't be used, such as TOPIC_AUTHORIZATION_FAILED.
    """
    waiting = {
        topic: asyncio.create_task(producer.partitions_for(topic), name=f"aioprod-topic-{topic}")
        for topic in topics
    }
    if not waiting:
        return
    try:
        await asyncio.wait(waiting.values(), timeout=_LIMIT_S)
    finally:
        for task in waiting.values():
            task.cancel()
        await asyncio.gather(*waiting.values(), return_exceptions=True)
    for topic, task in waiting.items():
        if task.cancelled():
            raise _missing(topic, topics[topic])
        try:
            task.result()
        except MetadataTimeoutError as error:  # max_block_ms is less
            raise _missing(topic, topics[topic]) from error


def _missing(topic: str, setting: str) -> ConfigError:
    return ConfigError(
        f"{setting}: topic {topic!r} is not in the cluster's metadata, and the cluster did not "
        "create it automatically: create it before the processor starts"
    )
