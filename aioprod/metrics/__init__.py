"""The metrics of producers and consumers, and observers of clients."""

from aioprod.metrics.admin_observers import AdminObserver, AdminObservers, CallDone, ObservedAdmin
from aioprod.metrics.consumer import ConsumerMetrics
from aioprod.metrics.consumer_observers import (
    CommitDone,
    ConsumerObserver,
    ConsumerObservers,
    ObservedConsumer,
    PartitionsChanged,
    RebalanceDone,
    RecordsReturned,
    StallChanged,
)
from aioprod.metrics.observing import ObserverList, RequestDone
from aioprod.metrics.producer import ProducerMetrics, TransactionStep
from aioprod.metrics.producer_observers import (
    BatchDone,
    BatchSent,
    ObservedProducer,
    ProducerObserver,
    ProducerObservers,
)

__all__ = [
    "AdminObserver",
    "AdminObservers",
    "BatchDone",
    "BatchSent",
    "CallDone",
    "CommitDone",
    "ConsumerMetrics",
    "ConsumerObserver",
    "ConsumerObservers",
    "ObservedAdmin",
    "ObservedConsumer",
    "ObservedProducer",
    "ObserverList",
    "PartitionsChanged",
    "ProducerMetrics",
    "ProducerObserver",
    "ProducerObservers",
    "RebalanceDone",
    "RecordsReturned",
    "RequestDone",
    "StallChanged",
    "TransactionStep",
]
