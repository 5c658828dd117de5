"""The metrics that a consumer pushes to brokers (KIP-714)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from aioprod.config.consumer import ConsumerConfig
from aioprod.metrics import ObservedConsumer
from aioprod.metrics.telemetry_source import TelemetrySource

if TYPE_CHECKING:
    from aioprod.config.share_consumer import ShareConsumerConfig
    from aioprod.metrics.telemetry import MetricValue, Selection


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

    def pushed(wanted: Selection) -> Iterable[MetricValue]:
        from aioprod.metrics import telemetry  # few brokers ask for metrics

        if isinstance(config, ConsumerConfig):
            return telemetry.consumer_telemetry(observed(), wanted)
        return telemetry.share_consumer_telemetry(observed(), wanted)

    return TelemetrySource(labels, pushed)
