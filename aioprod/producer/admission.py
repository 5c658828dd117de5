"""Checks whether the producer accepts calls and records now."""

from __future__ import annotations

from aioprod.cluster.runtime import ClientRuntime
from aioprod.errors import TransactionStateError
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.transactions.gate import Transactions


class Admission:
    """Checks that the producer is started, not closed and has not failed, that this is its event
    loop, and that a transaction is open if records need one.
    """

    def __init__(
        self, runtime: ClientRuntime, accumulator: RecordAccumulator, transactions: Transactions
    ) -> None:
        self._runtime = runtime
        self._accumulator = accumulator
        self._transactions = transactions
        self._status = transactions.status

    def check_running(self) -> None:
        """Check that the producer is started and open, and that this is its event loop.

        Raises:
            ProducerClosedError: if it is not started or was closed.
            WrongEventLoopError: if it was started in another event loop.
            KafkaError: if the producer has failed.
        """
        failure = self._accumulator.closed
        if failure is None or self._runtime.closing is not None:
            self._runtime.check_running()
            return
        # Even if the start has failed: then starting again does not help.
        self._runtime.loop_binding.check()
        raise failure.with_traceback(None)

    def check_may_send(self, transaction: int | None) -> None:
        """Check that a record is accepted whose call began in the transaction of this number.

        Raises:
            TransactionStateError: if no transaction is open, or another one.
            KafkaError: see :meth:`check_running`; and if the transaction has failed.
        """
        if self.may_append(transaction):  # as usual: two calls instead of five
            self._runtime.loop_binding.check()
            return
        self.check_running()
        self._transactions.check_may_send()
        if transaction != self._status.number:
            raise TransactionStateError(
                "the transaction ended while send() waited: await all sends before commit or abort"
            )

    def may_append(self, transaction: int | None) -> bool:
        """Return whether :meth:`check_may_send` would pass, for a caller that has checked
        the event loop.
        """
        status, runtime = self._status, self._runtime
        return (
            runtime.started
            and runtime.closing is None
            and self._accumulator.closed is None
            and status.may_append
            and transaction == status.number
        )
