"""Makes ``format("aioprod")`` known to PySpark by itself: Spark imports every module named
``pyspark_...`` and registers its DefaultSource.

It does so where a session looks for its first Python data source, whosever, and registers none when
one of the modules fails. So this one imports nothing but what that process has loaded anyway; what
aioprod needs is imported, and missed, by who asks for the format.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from aioprod.spark import KafkaDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Stands for `aioprod.spark.KafkaDataSource`: calling it gives one of those.

    Raises:
        ImportError: what ``aioprod[spark]`` brings is missing or too old; the text says what to
            install.
    """

    def __new__(cls, options: MutableMapping[str, str]) -> KafkaDataSource:  # type: ignore[misc]
        from aioprod.spark import KafkaDataSource

        return KafkaDataSource(options)

    @classmethod
    def name(cls) -> str:
        return "aioprod"
