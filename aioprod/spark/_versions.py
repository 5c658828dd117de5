"""What newer PySpark versions added: read limits and availableNow for Python sources came with 4.2."""

from __future__ import annotations

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1: it asks for the latest offset without arguments and never uses these

    class ReadLimit:  # type: ignore[no-redef]
        """Stands in for Spark 4.2's class."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Stands in for Spark 4.2's class."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """Stands in for Spark 4.2's class."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for Spark 4.2's class."""


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
