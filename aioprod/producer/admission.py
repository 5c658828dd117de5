"""Whether the producer accepts calls and records now."""

from __future__ import annotations

from aioprod.cluster.home import Home
from aioprod.errors import KafkaError, ProducerClosedError, TransactionStateError
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.transactions.gate import Transactions


class Admission:
    """Checks each call: the producer is started, not closed and not broken, this is its event loop,
    and a transaction is open if records need one.

    Attributes:
        started: whether ``start`` has succeeded.
        closing: why no more calls are accepted; None before ``close``.
    """

    def __init__(
        self, home: Home, accumulator: RecordAccumulator, transactions: Transactions
    ) -> None:
        self.started = False
        self.closing: KafkaError | None = None
        self._home = home
        self._accumulator = accumulator
        self._transactions = transactions
        self._status = transactions.status

    def open(self) -> None:
        """Accept calls: the producer has started."""
        self.started = True

    def close(self, reason: KafkaError) -> KafkaError:
        """Refuse further calls; return why, which is the first ``reason`` that was given."""
        self.closing = self.closing or reason
        return self.closing

    def check_running(self) -> None:
        """Check that the producer is started and open, and that this is its event loop.

        Raises:
            ProducerClosedError: if it is not started or was closed.
            WrongEventLoopError: if it was started in another event loop.
            KafkaError: if the producer has failed.
        """
        self._home.check()
        error = self.closing or self._accumulator.closed
        if error is None and not self.started:
            error = ProducerClosedError(
                "the producer is not started: use 'async with Producer(...)' or await start()"
            )
        if error is not None:
            raise error.with_traceback(None)

    def check_may_send(self, transaction: int | None) -> None:
        """Check that a record of a call that began in the transaction of this number is accepted.

        Raises:
            TransactionStateError: if no transaction is open, or another one.
            KafkaError: as :meth:`check_running`, or if the transaction has failed.
        """
        self.check_running()
        self._transactions.check_may_send()
        if transaction != self._status.number:
            raise TransactionStateError(
                "send() waited until its transaction had ended: await all sends before "
                "commit or abort"
            )

    def may_append(self, transaction: int | None) -> bool:
        """Return whether :meth:`check_may_send` would pass, for a caller that has checked
        the event loop.
        """
        status = self._status
        return self.closing is None and status.may_append and transaction == status.number
