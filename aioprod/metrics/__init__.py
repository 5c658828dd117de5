"""The metrics of producers, consumers and share consumers, and observers of clients.

Names that ``__all__`` leaves out are for the clients.
"""

from aioprod.metrics.admin_observers import AdminObserver, CallDone, ObservedAdmin
from aioprod.metrics.admin_observers import AdminObservers as AdminObservers
from aioprod.metrics.consumer import ConsumerMetrics as ConsumerMetrics
from aioprod.metrics.consumer_observers import (
    CommitDone,
    ConsumerObserver,
    ObservedConsumer,
    PartitionsChanged,
    RebalanceDone,
    RecordsReturned,
    StallChanged,
    TopicRecreated,
)
from aioprod.metrics.consumer_observers import ConsumerObservers as ConsumerObservers
from aioprod.metrics.observing import ObserverList as ObserverList
from aioprod.metrics.observing import RequestDone
from aioprod.metrics.producer import ProducerMetrics as ProducerMetrics
from aioprod.metrics.producer import TransactionStep
from aioprod.metrics.producer_observers import (
    BatchDone,
    BatchSent,
    ObservedProducer,
    ProducerObserver,
)
from aioprod.metrics.producer_observers import ProducerObservers as ProducerObservers
from aioprod.metrics.share_consumer import ShareConsumerMetrics as ShareConsumerMetrics
from aioprod.metrics.share_consumer_observers import (
    AcknowledgementsDone,
    AssignmentChanged,
    RecordsDelivered,
    ShareConsumerObserver,
)
from aioprod.metrics.share_consumer_observers import (
    ShareConsumerObservers as ShareConsumerObservers,
)

__all__ = [
    "AcknowledgementsDone",
    "AdminObserver",
    "AssignmentChanged",
    "BatchDone",
    "BatchSent",
    "CallDone",
    "CommitDone",
    "ConsumerObserver",
    "ObservedAdmin",
    "ObservedConsumer",
    "ObservedProducer",
    "PartitionsChanged",
    "ProducerObserver",
    "RebalanceDone",
    "RecordsDelivered",
    "RecordsReturned",
    "RequestDone",
    "ShareConsumerObserver",
    "StallChanged",
    "TopicRecreated",
    "TransactionStep",
]
