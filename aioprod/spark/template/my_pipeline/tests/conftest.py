"""A Spark session for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from aioprod.spark import spark_session_builder
from my_pipeline.sink import session_settings

from .events import event as event


# if iceberg
@pytest.fixture(scope="session", autouse=True)
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tables in a temporary directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ICEBERG_WAREHOUSE", str(tmp_path_factory.mktemp("lake")))
        yield


# end
@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    builder = spark_session_builder("local[2]", app_name="tests")
    session = builder.config(map={**session_settings()}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
