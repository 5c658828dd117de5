"""The options of writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aioprod.config import check_names
from aioprod.errors import ConfigError
from aioprod.producer_config import ProducerConfig
from aioprod.spark.options import SINK_NAMES, SOURCE_NAMES, check_option_names, client_settings, lower_keys, typed_settings

# A task has all its rows at hand: larger batches fill at once. Kafka's 16 KiB is for records that come one by one.
_PRODUCER_DEFAULTS = {"batch_size": 128 * 1024}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a write.

    Attributes:
        topic: the topic of all rows; without it each row names its own in the column ``topic``.
        producer: keyword arguments of `aioprod.Producer`.
    """

    topic: str | None
    producer: Mapping[str, Any] = field(repr=False)  # it may hold passwords


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write. Limits of the producer's settings are checked when it is made.

    Raises:
        ConfigError: an option is missing, unknown or not supported.
    """
    given = lower_keys(options)
    client = client_settings(given, None)
    check_option_names(given, SINK_NAMES, kind="write", other=SOURCE_NAMES, other_kind="read")
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("option topic is empty")
    settings = typed_settings(ProducerConfig, client)
    check_names(ProducerConfig, settings)
    return SinkOptions(topic=topic, producer=_PRODUCER_DEFAULTS | settings)
