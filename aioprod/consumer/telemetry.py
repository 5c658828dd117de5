"""What a consumer pushes to brokers (KIP-714)."""

from __future__ import annotations

from collections.abc import Callable

from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.membership import Membership
from aioprod.metrics import ObservedConsumer
from aioprod.metrics.telemetry import TelemetrySource, consumer_figures


def telemetry_source(
    config: ConsumerConfig,
    membership: Callable[[], Membership],
    observed: Callable[[], ObservedConsumer],
) -> TelemetrySource | None:
    """Return the metrics and labels of a consumer, or None if it pushes none.

    Args:
        membership, observed: return the member and the metrics.
    """
    if not config.enable_metrics_push:
        return None

    def labels() -> dict[str, str]:
        given = {
            "client_rack": config.client_rack,
            "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
        }
        if config.group_id is not None:
            given["group_member_id"] = membership().group_metadata().member_id
        return {name: value for name, value in given.items() if value}

    return TelemetrySource(labels, lambda wanted: consumer_figures(observed(), wanted))
