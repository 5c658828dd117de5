"""PySpark's versions: what older ones give a stream writer, and (with -m interop) every way to read
and write on each of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
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

from .other_pyspark import pyspark_environment

REPOSITORY = Path(aioprod.__file__).parents[1]
PROGRAMS = Path(__file__).parent / "programs"
EVERY_WAY = PROGRAMS / "every_way.py"
ENDED_WINDOWS = PROGRAMS / "ended_windows.py"
REGISTRY_AND_STATE = PROGRAMS / "registry_and_state.py"
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


def installed(
    directory: Path, version: str, *, connect: bool = False, extras: str = "spark"
) -> Path:
    """The Python of a new environment with the project's wheel and that PySpark."""
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    pyspark = f"pyspark[connect]=={version}" if connect else f"pyspark=={version}"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", f"{REPOSITORY}[{extras}]", pyspark],
        check=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    return python


def run_program(python: Path, program: Path, *arguments: str) -> dict[str, Any]:
    command = [str(python), str(program), *arguments]
    done = subprocess.run(
        command,
        cwd=python.parent,
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=True,
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


@pytest.mark.interop
@pytest.mark.timeout(INSTALL_TIMEOUT_S + RUN_TIMEOUT_S)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_way_works_on_each_version(tmp_path: Path, version: str) -> None:
    """With the extra ``spark`` alone."""
    measured = run_program(installed(tmp_path / "venv", version), EVERY_WAY)
    limits = version >= "4.2"
    assert measured["version"] == version
    assert (measured["read"], measured["headers"]) == (25_000, 16_666)
    assert (measured["first"], measured["second"]) == ([25_000], [5_000])
    assert measured["typed"] == TYPED
    assert (
        max(measured["limited"]) <= 20_002 and sum(measured["limited"]) == 30_000
        if limits
        else LIMITS_NEED in measured["limited"]
    )
    assert measured["same"] and measured["copied"] == (60_000 if limits else 30_000)


@pytest.mark.interop
@pytest.mark.timeout(INSTALL_TIMEOUT_S + RUN_TIMEOUT_S)
@pytest.mark.parametrize("version", VERSIONS)
def test_registries_and_spark_s_state_work_on_each_version(tmp_path: Path, version: str) -> None:
    """Protobuf comes with the extra ``schema-registry``; ``transformWithState`` needs it too."""
    python = installed(tmp_path / "venv", version, extras="spark,schema-registry")
    measured = run_program(python, REGISTRY_AND_STATE)
    copied = [60, [[0, "tea"], [59, "tea"]], True]
    assert measured == {"avro": copied, "json-schema": copied, "protobuf": copied, "counts": 120}


@pytest.mark.interop
@pytest.mark.timeout(INSTALL_TIMEOUT_S + RUN_TIMEOUT_S)
@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_when_a_run_over_all_records_writes_windows_that_have_ended(version: str) -> None:
    """docs/spark-pipeline.md says when."""
    environment = pyspark_environment(version)
    done = subprocess.run(
        [sys.executable, ENDED_WINDOWS],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=True,
    )
    in_one_run = version >= "4.2"
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "version": version,
        "false": ["10:00"] if in_one_run else [],
        "true": ["10:00"],
    }


@pytest.mark.interop
@pytest.mark.timeout(INSTALL_TIMEOUT_S + RUN_TIMEOUT_S)
def test_every_way_works_through_spark_connect(tmp_path: Path) -> None:
    python = installed(tmp_path / "venv", VERSIONS[-1], connect=True)
    measured = run_program(python, EVERY_WAY, "remote")
    assert (measured["read"], measured["headers"]) == (25_000, 16_666)
    assert measured["typed"] == TYPED
    assert measured["same"] and measured["copied"] == 60_000
