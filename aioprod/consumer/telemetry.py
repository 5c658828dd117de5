"""The metrics that a consumer pushes to brokers (KIP-714)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aioprod.config.consumer import ConsumerConfig
from aioprod.metrics import ObservedConsumer
from aioprod.metrics.telemetry import (
    TelemetrySource,
    consumer_telemetry,
    share_consumer_telemetry,
)

if TYPE_CHECKING:
    from aioprod.config.share_consumer import ShareConsumerConfig


def telemetry_source(
    config: ConsumerConfig | ShareConsumerConfig,
    member_id: Callable[[], str],
    observed: Callable[[], ObservedConsumer],
) -> TelemetrySource | None:
    """Return the metrics and labels of a consumer or share consumer, or None if it pushes none.

    Args:
        member_id: returns the id of the member, of a consumer in a group.
        observed: returns the metrics.
    """
    if not config.enable_metrics_push:
        return None

    def labels() -> dict[str, str]:
        given = {"client_rack": config.client_rack, "group_id": config.group_id}
        if isinstance(config, ConsumerConfig):
            given["group_instance_id"] = config.group_instance_id
        if config.group_id is not None:
            given["group_member_id"] = member_id()
        return {name: value for name, value in given.items() if value}

    metrics = consumer_telemetry if isinstance(config, ConsumerConfig) else share_consumer_telemetry
    return TelemetrySource(labels, lambda wanted: metrics(observed(), wanted))
