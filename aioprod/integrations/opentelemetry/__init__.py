"""OpenTelemetry: spans and metrics of producers, consumers, share consumers and processors, by the
semantic conventions for messaging.

Requires the extra ``opentelemetry``, which is the API only: without an SDK nothing is recorded, but
the current context is still propagated.

The conventions for messaging are not final; these are the names of version 1.30 and later
(``messaging.kafka.offset``, ``messaging.operation.type``).
"""

from aioprod.integrations.opentelemetry.consumer import (
    OpenTelemetryConsumerInterceptor,
    OpenTelemetryConsumerObserver,
)
from aioprod.integrations.opentelemetry.processor import OpenTelemetryProcessorObserver
from aioprod.integrations.opentelemetry.producer import (
    OpenTelemetryInterceptor,
    OpenTelemetryObserver,
    trace_headers,
)
from aioprod.integrations.opentelemetry.share_consumer import (
    OpenTelemetryShareConsumerObserver,
    OpenTelemetryShareConsumerSpans,
)

__all__ = [
    "OpenTelemetryConsumerInterceptor",
    "OpenTelemetryConsumerObserver",
    "OpenTelemetryInterceptor",
    "OpenTelemetryObserver",
    "OpenTelemetryProcessorObserver",
    "OpenTelemetryShareConsumerObserver",
    "OpenTelemetryShareConsumerSpans",
    "trace_headers",
]
