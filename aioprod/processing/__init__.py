"""Runs coroutines over the records of topics: order by key, retries, dead letters, and one of three
guarantees.
"""

import typing as _typing

from aioprod.lazy_names import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from aioprod.processing.config import ProcessorConfig, ProcessorSettings
    from aioprod.processing.errors import ProcessingError
    from aioprod.processing.health import ProcessorState, ProcessorStatus
    from aioprod.processing.observers import (
        Acknowledged,
        DeadLettered,
        Handled,
        HandlerFailed,
        Handling,
        ObservedProcessor,
        OffsetsCommitted,
        ProcessorObserver,
    )
    from aioprod.processing.processor import BatchProcessor, Processor
    from aioprod.processing.records import Record
    from aioprod.processing.retries import RetryPolicy, RetryTopic
    from aioprod.processing.share_config import ShareProcessorConfig, ShareProcessorSettings
    from aioprod.processing.share_processor import ShareBatchProcessor, ShareProcessor

_HOMES = {
    "Acknowledged": "aioprod.processing.observers",
    "BatchProcessor": "aioprod.processing.processor",
    "DeadLettered": "aioprod.processing.observers",
    "Handled": "aioprod.processing.observers",
    "HandlerFailed": "aioprod.processing.observers",
    "Handling": "aioprod.processing.observers",
    "ObservedProcessor": "aioprod.processing.observers",
    "OffsetsCommitted": "aioprod.processing.observers",
    "ProcessingError": "aioprod.processing.errors",
    "Processor": "aioprod.processing.processor",
    "ProcessorConfig": "aioprod.processing.config",
    "ProcessorObserver": "aioprod.processing.observers",
    "ProcessorSettings": "aioprod.processing.config",
    "ProcessorState": "aioprod.processing.health",
    "ProcessorStatus": "aioprod.processing.health",
    "Record": "aioprod.processing.records",
    "RetryPolicy": "aioprod.processing.retries",
    "RetryTopic": "aioprod.processing.retries",
    "ShareBatchProcessor": "aioprod.processing.share_processor",
    "ShareProcessor": "aioprod.processing.share_processor",
    "ShareProcessorConfig": "aioprod.processing.share_config",
    "ShareProcessorSettings": "aioprod.processing.share_config",
}

__all__ = [
    "Acknowledged",
    "BatchProcessor",
    "DeadLettered",
    "Handled",
    "HandlerFailed",
    "Handling",
    "ObservedProcessor",
    "OffsetsCommitted",
    "ProcessingError",
    "Processor",
    "ProcessorConfig",
    "ProcessorObserver",
    "ProcessorSettings",
    "ProcessorState",
    "ProcessorStatus",
    "Record",
    "RetryPolicy",
    "RetryTopic",
    "ShareBatchProcessor",
    "ShareProcessor",
    "ShareProcessorConfig",
    "ShareProcessorSettings",
]

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(globals(), _HOMES)
