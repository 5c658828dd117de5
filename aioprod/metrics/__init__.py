"""A producer's metrics, and the hook for those who watch it."""

from aioprod.metrics.observers import BatchDone, BatchSent, ObservedProducer, Observers, ProducerObserver, RequestDone
from aioprod.metrics.producer import ProducerMetrics, TransactionStep

__all__ = ["BatchDone", "BatchSent", "ObservedProducer", "Observers", "ProducerMetrics", "ProducerObserver", "RequestDone", "TransactionStep"]
