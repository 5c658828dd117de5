"""Prometheus metrics of the relays of an outbox."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from prometheus_client import REGISTRY, CollectorRegistry

from aioprod.integrations.prometheus.collector import ClientKind, Registration, Samples
from aioprod.outbox import OutboxRelay


class PrometheusOutboxRelay:
    """Adds the metrics of a relay to a registry, until :meth:`close`.

    Names are those of ``metrics()`` with the prefix ``kafka_outbox_relay_``, and those of
    ``metrics_by_shard()`` with ``kafka_outbox_shard_``, with underscores for dashes. Labels are
    ``relay`` (the ``name`` of the relay) and ``shard``.

    Args:
        relay: the relay.
        registry: the registry; the library's global one by default.
    """

    def __init__(self, relay: OutboxRelay, registry: CollectorRegistry = REGISTRY) -> None:
        self._registration = Registration(registry, _KIND)
        self._registration.start((relay.name,), partial(_samples, relay))

    def close(self) -> None:
        """Remove the metrics."""
        self._registration.close()


def _samples(relay: OutboxRelay) -> Iterable[Samples]:
    yield Samples(_OF_RELAY, {}, relay.metrics())
    for shard, values in relay.metrics_by_shard().items():
        yield Samples(_OF_SHARD, {"shard": str(shard)}, values)


def _example() -> Iterable[Samples]:
    yield Samples(_OF_RELAY, {}, dict.fromkeys((*_METRICS, *_BY_SHARD), 0.0))
    yield Samples(_OF_SHARD, {"shard": ""}, dict.fromkeys(_BY_SHARD, 0.0))


_OF_RELAY = "outbox-relay-metrics"
_OF_SHARD = "outbox-shard-metrics"
_METRICS = ("records-sent-total", "shards-owned", "shards-failing", "rows-refused")
_BY_SHARD = ("rows-waiting", "oldest-row-age-seconds")
_KIND = ClientKind("kafka_outbox_relay", ("relay",), (), _example)
