"""A Spark session for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from aioprod.spark import spark_session_builder
from my_pipeline.sink import session_settings

from .events import event as event


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    builder = spark_session_builder("local[2]", app_name="tests")
    session = builder.config(map={**session_settings()}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
