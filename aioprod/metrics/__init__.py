"""The metrics of producers and consumers, and observers of producers."""

from aioprod.metrics.consumer import ConsumerMetrics
from aioprod.metrics.observers import (
    BatchDone,
    BatchSent,
    ObservedProducer,
    Observers,
    ProducerObserver,
    RequestDone,
)
from aioprod.metrics.producer import ProducerMetrics, TransactionStep

__all__ = [
    "BatchDone",
    "BatchSent",
    "ConsumerMetrics",
    "ObservedProducer",
    "Observers",
    "ProducerMetrics",
    "ProducerObserver",
    "RequestDone",
    "TransactionStep",
]
