"""Prometheus: the metrics of producers, consumers, share consumers, processors and the relays of
an outbox, read at each scrape, and histograms with one value per event.

Requires the extra ``prometheus``.
"""

from aioprod.integrations.prometheus.consumer import PrometheusConsumerObserver
from aioprod.integrations.prometheus.outbox import PrometheusOutboxRelay
from aioprod.integrations.prometheus.processor import PrometheusProcessorObserver
from aioprod.integrations.prometheus.producer import PrometheusObserver
from aioprod.integrations.prometheus.share_consumer import PrometheusShareConsumerObserver

__all__ = [
    "PrometheusConsumerObserver",
    "PrometheusObserver",
    "PrometheusOutboxRelay",
    "PrometheusProcessorObserver",
    "PrometheusShareConsumerObserver",
]
