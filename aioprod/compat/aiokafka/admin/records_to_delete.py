"""An argument of ``delete_records``."""

from __future__ import annotations


class RecordsToDelete:
    """The records before an offset."""

    def __init__(self, before_offset: int) -> None:
        self.before_offset = before_offset
