"""Prometheus: the metrics of producers, consumers and processors, read at each scrape, and
histograms with one value per event.

Requires the extra ``prometheus``.
"""

from aioprod.integrations.prometheus.consumer import PrometheusConsumerObserver
from aioprod.integrations.prometheus.processor import PrometheusProcessorObserver
from aioprod.integrations.prometheus.producer import PrometheusObserver

__all__ = ["PrometheusConsumerObserver", "PrometheusObserver", "PrometheusProcessorObserver"]
