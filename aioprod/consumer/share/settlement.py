"""The outcomes of the acknowledgements for one broker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aioprod.consumer.share.acknowledgements import (
    Acknowledgements,
    PartitionAcknowledgements,
    PartitionKey,
    SharePartition,
)
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.net.refusals import explain
from aioprod.types import AcknowledgeType


class Settled(NamedTuple):
    """What a response says of the acknowledgements of its request.

    Attributes:
        refused: whether the broker has refused one.
        renewed: the partition and the offset of each record whose lock the broker has renewed.
    """

    refused: bool
    renewed: list[tuple[SharePartition, int]]


class Settlement:
    """Takes acknowledgements from those that wait into a request, and gives them their outcomes.

    Args:
        node_id: the broker.
        waiting: those that are not sent yet. Those that are to be sent again go back there.
        outcomes: hears of all.
        reporter: hears of those that are sent.
        principal: the principal of the client, for errors.
        limit_s: how long those that the broker refuses are sent again, in seconds.
    """

    def __init__(
        self,
        node_id: int,
        waiting: Acknowledgements,
        outcomes: Outcomes,
        reporter: ShareReporter,
        principal: str,
        limit_s: float,
    ) -> None:
        self._node_id = node_id
        self._waiting = waiting
        self._outcomes = outcomes
        self._reporter = reporter
        self._principal = principal
        self._limit_s = limit_s
        self._sent: dict[SharePartition, PartitionAcknowledgements] = {}

    @property
    def done(self) -> bool:
        """Whether each acknowledgement has an outcome."""
        return not (self._waiting or self._sent)

    def send(self, now: float) -> Mapping[SharePartition, PartitionAcknowledgements]:
        """Return those that wait, for the next request. Those whose lock has ended fail."""
        self._sent, late = self._waiting.take(now)
        for partition, acknowledgements in late.items():
            error = BrokerError(
                ErrorCode.INVALID_RECORD_STATE,
                f"{_name(partition)}: the locks of the records timed out "
                "(share.record.lock.duration.ms of the group)",
            )
            self._fail(partition, acknowledgements, error)
        if self._sent:
            self._reporter.acknowledgements_sent(sum(each.records for each in self._sent.values()))
        return self._sent

    def answered(self, codes: Mapping[PartitionKey, ErrorCode], now: float) -> Settled:
        """Give those of the request their outcomes, or let them wait to be sent again."""
        sent, self._sent = self._sent, {}
        refused = False
        renewed: list[tuple[SharePartition, int]] = []
        for partition, acknowledgements in sent.items():
            # Without an error code in the response, nothing is confirmed.
            code = codes.get(partition.key, ErrorCode.UNKNOWN_SERVER_ERROR)
            if not code:
                self._outcomes.confirmed(
                    partition.tp, acknowledgements.types, acknowledgements.since
                )
                renewed += [(partition, offset) for offset in acknowledgements.renewals()]
                continue
            refused = True
            refusal = refusal_of(partition, code, "ShareAcknowledge", self._principal)
            tries_again = now < acknowledgements.since + self._limit_s
            if code.retriable and not code.refresh_metadata and tries_again:
                self._outcomes.retried(partition.tp, refusal)
                self._waiting.put_back(partition, acknowledgements)
            else:
                self._fail(partition, acknowledgements, refusal)
        return Settled(refused, renewed)

    def session_lost(self, error: KafkaError) -> None:
        """Fail all: the broker releases the records of the session, or has done so."""
        sent, self._sent = self._sent, {}
        for partition, acknowledgements in sent.items():
            self._fail(partition, acknowledgements, error)
        for partition, acknowledgements in self._waiting.take(-math.inf)[0].items():
            self._fail(partition, acknowledgements, self._session_lost(error))

    def _fail(
        self,
        partition: SharePartition,
        acknowledgements: PartitionAcknowledgements,
        error: KafkaError,
    ) -> None:
        self._outcomes.failed(partition.tp, acknowledgements.types, error, acknowledgements.since)

    def refuse(
        self, partition: SharePartition, offsets: Sequence[int], kind: AcknowledgeType
    ) -> None:
        """Fail an acknowledgement of records of an earlier session."""
        self._outcomes.failed(
            partition.tp, dict.fromkeys(offsets, kind), self._session_lost(), self._reporter.now()
        )

    def _session_lost(self, cause: KafkaError | None = None) -> KafkaError:
        error = BrokerError(
            ErrorCode.SHARE_SESSION_NOT_FOUND,
            f"broker {self._node_id}: the records of the session are delivered again",
        )
        error.__cause__ = cause
        return error


def refusal_of(
    partition: SharePartition, code: ErrorCode, request: str, principal: str
) -> BrokerError:
    """Return the error of a partition in a response.

    Args:
        partition: the partition.
        code: its error code.
        request: the name of the request.
        principal: the principal of the client.
    """
    return explain(BrokerError(code, _name(partition)), request, principal)


def _name(partition: SharePartition) -> str:
    return f"{partition.topic}-{partition.partition}"
