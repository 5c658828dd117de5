"""Records that wait for their deserializer."""

from __future__ import annotations

from aioprod.errors import KafkaError
from aioprod.preparation import MOST_ATTEMPTS, NotPrepared
from aioprod.types import ConsumerRecord


class HeldBack:
    """The records of a batch from the first whose deserializer has to wait.

    Attributes:
        records: these records, as they were fetched.
        needed: what the deserializer of the first one waits for, until the next look at it.
    """

    __slots__ = ("_attempts", "_latest", "needed", "records")

    def __init__(self) -> None:
        self.records: list[ConsumerRecord] = []
        self.needed: NotPrepared | None = None
        self._latest: list[ConsumerRecord] = []
        self._attempts = 0  # that were completed, and the first record needed another one

    def hold(self, rest: list[ConsumerRecord], needed: NotPrepared) -> None:
        """Hold records back: they come before those that are held already."""
        self.records = rest + self.records
        self.needed = needed

    def remember(self, latest: list[ConsumerRecord]) -> None:
        """Remember records that were converted last, as they were fetched."""
        self._latest = latest

    def hold_again(self, offset: int) -> None:
        """Hold those back that were converted last, from an offset on."""
        self.records[:0] = [record for record in self._latest if record.offset >= offset]

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Return the first records, to be converted again."""
        taken, self.records = self.records[:limit], self.records[limit:]
        return taken

    def clear(self) -> None:
        """Drop all records."""
        self.records = []

    def converted(self) -> None:
        """Note that a record was converted."""
        self._attempts = 0

    def failure(self) -> BaseException | None:
        """Return why the first record can't be converted, if its deserializer can't be prepared;
        all records are dropped then.
        """
        needed, self.needed = self.needed, None
        if needed is None:
            return None
        self._attempts += needed.is_done
        if self._attempts > MOST_ATTEMPTS:
            needed.fail(KafkaError(f"it asked to be prepared {self._attempts} times"))
        if needed.error is not None:
            self.clear()
        return needed.error
