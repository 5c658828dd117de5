"""The metrics of producers, consumers and share consumers, and observers of clients."""

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
    TopicRecreated,
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
from aioprod.metrics.share_consumer import ShareConsumerMetrics
from aioprod.metrics.share_consumer_observers import (
    AcknowledgementsDone,
    AssignmentChanged,
    RecordsDelivered,
    ShareConsumerObserver,
    ShareConsumerObservers,
)

__all__ = [
    "AcknowledgementsDone",
    "AdminObserver",
    "AdminObservers",
    "AssignmentChanged",
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
    "RecordsDelivered",
    "RecordsReturned",
    "RequestDone",
    "ShareConsumerMetrics",
    "ShareConsumerObserver",
    "ShareConsumerObservers",
    "StallChanged",
    "TopicRecreated",
    "TransactionStep",
]
