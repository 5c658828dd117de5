"""PySpark's versions: what older ones give a stream writer, and (with -m interop) every way to read
and write on each of them.
"""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    Row,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import aioprod
from aioprod.spark._versions import batches_of_rows, stream_batches

REPOSITORY = Path(aioprod.__file__).parents[1]
EVERY_WAY = Path(__file__).parent / "programs" / "every_way.py"
INSTALL_TIMEOUT_S, RUN_TIMEOUT_S = 600, 400
VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
TYPED = [["0", "1.50", "2024-05-01 10:00:00"], ["1", "1.50", "2024-05-01 10:00:01"]]
LIMITS_NEED = "need PySpark 4.2 or newer"

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("seen", TimestampType()),
        StructField("value", BinaryType()),
        StructField("partition", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
        StructField("key", StringType()),
    ]
)


def row(number: int) -> Row:
    headers = [Row(key="n", value=b"%d" % number), Row(key="none", value=None)]
    return Row(
        seen=None,
        value=bytearray(b"%d" % number),
        partition=number % 3,
        headers=headers if number else None,
        key=None,
    )


def test_rows_become_the_arrow_batches_that_newer_versions_give() -> None:
    batches = list(batches_of_rows(map(row, range(10_001)), SCHEMA))
    assert [batch.num_rows for batch in batches] == [10_000, 1]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "value": pa.binary(),
        "partition": pa.int32(),
        "headers": pa.list_(header),
        "key": pa.string(),
    }
    assert {name: batches[1].schema.field(name).type for name in batches[1].schema.names} == types
    found = [found for batch in batches for found in batch.to_pylist()]
    headers = [{"key": "n", "value": b"10000"}, {"key": "none", "value": None}]
    assert found[0] == {"value": b"0", "partition": 0, "headers": None, "key": None}
    assert found[10_000] == {
        "value": b"10000",
        "partition": 10_000 % 3,
        "headers": headers,
        "key": None,
    }


def test_no_rows_are_no_batches() -> None:
    assert list(batches_of_rows(iter(()), SCHEMA)) == []


def test_batches_are_left_as_they_are() -> None:
    given = [pa.record_batch({"value": [b"x"]})]
    assert list(stream_batches(iter(given), SCHEMA)) == given


def installed(directory: Path, version: str, *, connect: bool) -> Path:
    """The Python of a new environment with the project's wheel and that PySpark."""
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    pyspark = f"pyspark[connect]=={version}" if connect else f"pyspark=={version}"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", f"{REPOSITORY}[spark]", pyspark],
        check=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    return python


def run_every_way(python: Path, *arguments: str) -> dict[str, Any]:
    command = [str(python), str(EVERY_WAY), *arguments]
    done = subprocess.run(
        command,
        cwd=python.parent,
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


@pytest.mark.interop
@pytest.mark.timeout(INSTALL_TIMEOUT_S + RUN_TIMEOUT_S)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_way_works_on_each_version(tmp_path: Path, version: str) -> None:
    figures = run_every_way(installed(tmp_path / "venv", version, connect=False))
    limits = version >= "4.2"
    assert figures["version"] == version
    assert (figures["read"], figures["headers"]) == (25_000, 16_666)
    assert (figures["first"], figures["second"]) == ([25_000], [5_000])
    assert figures["typed"] == TYPED
    assert (
        max(figures["limited"]) <= 20_002 and sum(figures["limited"]) == 30_000
        if limits
        else LIMITS_NEED in figures["limited"]
    )
    assert figures["same"] and figures["copied"] == (60_000 if limits else 30_000)


@pytest.mark.interop
@pytest.mark.timeout(INSTALL_TIMEOUT_S + RUN_TIMEOUT_S)
def test_every_way_works_through_spark_connect(tmp_path: Path) -> None:
    figures = run_every_way(installed(tmp_path / "venv", VERSIONS[-1], connect=True), "remote")
    assert (figures["read"], figures["headers"]) == (25_000, 16_666)
    assert figures["typed"] == TYPED
    assert figures["same"] and figures["copied"] == 60_000
