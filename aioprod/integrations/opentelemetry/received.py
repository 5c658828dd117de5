"""Spans of records that were received, linked with the spans of their senders."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry import context as current
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, TracerProvider

from aioprod import ConsumerRecord, ShareRecord
from aioprod.integrations.opentelemetry.conventions import (
    HEADER_GETTER,
    Attributes,
    body_attributes,
    end_span,
    operation,
)

_RECEIVE = operation("poll", "receive")
_PROCESS = operation("process", "process")

Received = ConsumerRecord | ShareRecord


class ReceivedSpans:
    """Makes the spans ``poll <topic>`` and ``process <topic>``."""

    def __init__(
        self, tracer_provider: TracerProvider | None, propagator: TextMapPropagator | None
    ) -> None:
        self._tracer = trace.get_tracer("aioprod", tracer_provider=tracer_provider)
        self._propagator = propagator or propagate.get_global_textmap()

    def receive(
        self, records: Sequence[Received], client: Attributes, began_ns: int | None
    ) -> None:
        """Make the span of records of one partition that the application gets now.

        Args:
            client: attributes of the client.
            began_ns: the beginning, in nanoseconds since 1970.
        """
        first = records[0]
        now_ns = time.time_ns()
        span = self._tracer.start_span(
            f"poll {first.topic}",
            kind=SpanKind.CLIENT,
            links=self._links(records),
            attributes={
                **_RECEIVE,
                **client,
                **_place(records),
                "messaging.batch.message_count": len(records),
            },
            start_time=began_ns if began_ns is not None else now_ns,
        )
        span.end(now_ns)

    def process_given(
        self, given: Received | Sequence[Received], more: Attributes
    ) -> AbstractContextManager[Span]:
        """Make a span as :meth:`process` does, for a record or a list of records.

        Args:
            more: further attributes.
        """
        if isinstance(given, Received):
            return self.process((given,), is_batch=False, more=more, ambient=None)
        return self.process(given, is_batch=True, more=more, ambient=None)

    @contextmanager
    def process(
        self,
        records: Sequence[Received],
        *,
        is_batch: bool,
        more: Attributes,
        ambient: Context | None,
    ) -> Iterator[Span]:
        """Make a span that is current inside the block, and ends with its error.

        The span of one record is a child of its sender's span; that of a batch is linked with the
        spans of all senders.

        Args:
            more: further attributes.
            ambient: the parent of a batch, and of a record without a sender's span; the current
                context if None.
        """
        first = records[0]
        attributes = {**_PROCESS, **more, **_place(records)}
        parent, links = ambient, None
        if is_batch:
            links = self._links(records)
            attributes["messaging.batch.message_count"] = len(records)
        else:
            parent = self._propagator.extract(first.headers, ambient, HEADER_GETTER)
            attributes |= body_attributes(first.key, first.value)
            if isinstance(first, ShareRecord):
                attributes["aioprod.delivery_count"] = first.delivery_count
        span = self._tracer.start_span(
            f"process {first.topic}",
            parent,
            kind=SpanKind.CONSUMER,
            links=links,
            attributes=attributes,
        )
        token = current.attach(trace.set_span_in_context(span, parent))
        try:
            yield span
        except BaseException as error:
            end_span(span, error)
            raise
        else:
            end_span(span, None)
        finally:
            current.detach(token)

    def _links(self, records: Iterable[Received]) -> list[Link]:
        links = []
        for record in records:
            if not record.headers:
                continue
            sender = trace.get_current_span(
                self._propagator.extract(record.headers, Context(), HEADER_GETTER)
            ).get_span_context()
            if sender.is_valid:
                links.append(Link(sender, {"messaging.kafka.offset": record.offset}))
        return links


def _place(records: Sequence[Received]) -> Attributes:
    """Return where records were read; partition and offset if they have them in common."""
    first = records[0]
    place: Attributes = {"messaging.destination.name": first.topic}
    if all((each.topic, each.partition) == (first.topic, first.partition) for each in records):
        place["messaging.destination.partition.id"] = str(first.partition)
    if len(records) == 1:
        place["messaging.kafka.offset"] = first.offset
    return place


def client_attributes(client_id: str | None, group_id: str | None) -> Attributes:
    """Return the attributes of a client, as far as they are known."""
    found: dict[str, Any] = {
        "messaging.client.id": client_id,
        "messaging.consumer.group.name": group_id,
    }
    return {name: value for name, value in found.items() if value}
