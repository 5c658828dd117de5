"""The outcomes of acknowledgements, for ``commit`` and for the application's callback."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from aioprod.errors import KafkaError, copy_of
from aioprod.types import AcknowledgeType, TopicPartition
from aioprod.user_code import surface

log = logging.getLogger(__name__)

AcknowledgementCallback = Callable[
    [Mapping[TopicPartition, frozenset[int]], KafkaError | None], object
]
"""Called with the offsets of acknowledged records by partition, and with None if the broker has
confirmed them, else with the error.
"""


class Outcomes:
    """Passes outcomes on.

    Args:
        callback: the application's callback, if any. Its errors are logged.
        tells_renewals: whether renewals have outcomes, too; not if the client renews locks itself.
    """

    def __init__(
        self, callback: AcknowledgementCallback | None, *, tells_renewals: bool = True
    ) -> None:
        self._callback = callback
        self._tells_renewals = tells_renewals
        self._collected: dict[TopicPartition, KafkaError | None] | None = None

    @contextmanager
    def collected(self) -> Iterator[dict[TopicPartition, KafkaError | None]]:
        """Collect the outcomes during the ``with`` block: the first error of each partition."""
        found = self._collected = {}
        try:
            yield found
        finally:
            self._collected = None

    def confirmed(self, tp: TopicPartition, types: Mapping[int, AcknowledgeType]) -> None:
        """Note that a broker has confirmed acknowledgements, given by offset."""
        self._note(tp, types, None)

    def failed(
        self, tp: TopicPartition, types: Mapping[int, AcknowledgeType], error: KafkaError
    ) -> None:
        """Note that acknowledgements have failed, or may have failed."""
        self._note(tp, types, error)

    def _note(
        self,
        tp: TopicPartition,
        types: Mapping[int, AcknowledgeType],
        error: KafkaError | None,
    ) -> None:
        offsets: Collection[int] = types
        if not self._tells_renewals:
            offsets = [each for each in types if types[each] is not AcknowledgeType.RENEW]
        if not offsets:
            return
        if self._collected is not None and self._collected.get(tp) is None:
            self._collected[tp] = error if error is None else copy_of(error)
        if self._callback is None:
            return
        try:
            self._callback({tp: frozenset(offsets)}, error if error is None else copy_of(error))
        except BaseException as own:
            log.error("the acknowledgement_commit_callback failed", exc_info=own)
            surface(own)
