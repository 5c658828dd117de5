"""Registers ``format("aioprod")`` with PySpark automatically: Spark imports every module named
``pyspark_...`` and registers its DefaultSource.

Spark does so when a session looks up its first Python data source of any kind, and registers none
of them if one of the modules fails. So this module imports only modules that the process has
already loaded. aioprod's requirements are imported when the format is used, and only then is a
missing one an error.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from aioprod.spark import KafkaDataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """A placeholder for `aioprod.spark.KafkaDataSource`: calling it returns one.

    Raises:
        ImportError: if a requirement of ``aioprod[spark]`` is missing or too old; the message says
            what to install.
    """

    def __new__(cls, options: MutableMapping[str, str]) -> KafkaDataSource:  # type: ignore[misc]
        from aioprod.spark import KafkaDataSource

        return KafkaDataSource(options)

    @classmethod
    def name(cls) -> str:
        return "aioprod"
