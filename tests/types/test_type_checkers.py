"""mypy finds each mistake in ``mistakes.py``, and nothing in what is right. CI lets pyright check
the same file (``python -m tests.types.pyright``).
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from aioprod import (
    Consumer,
    ConsumerRecord,
    Producer,
    ProducerRecord,
    ShareConsumer,
    ShareRecord,
)
from aioprod.processing import Processor, Record
from tests.types import pyright
from tests.types.pyright import MISTAKES, marked_lines

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.timeout(400)
def test_mypy_finds_each_mistake(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"),
        str(MISTAKES),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=380, check=False, cwd=ROOT
    )
    found = {int(line) for line in re.findall(r"mistakes\.py:(\d+): error", done.stdout)}
    assert found == marked_lines(), done.stdout + done.stderr


def test_there_are_mistakes_to_find() -> None:
    assert len(marked_lines()) > 50


def test_a_report_of_pyright_is_read() -> None:
    report = {
        "generalDiagnostics": [
            {"file": "/a/mistakes.py", "severity": "error", "range": {"start": {"line": 4}}},
            {"file": "/a/mistakes.py", "severity": "warning", "range": {"start": {"line": 5}}},
            {"file": "/a/other.py", "severity": "error", "range": {"start": {"line": 6}}},
        ]
    }
    assert pyright.lines_of_errors(report) == {5}
    assert pyright.score_of({"typeCompleteness": {"completenessScore": 0.9871}}) == 98.71


@pytest.mark.parametrize(
    "kind", [Producer, Consumer, ShareConsumer, Processor, ConsumerRecord, ShareRecord, Record]
)
def test_classes_take_type_arguments_at_run_time(kind: Any) -> None:
    assert get_args(kind[str, int]) == (str, int)
    assert kind[str, int].__origin__ is kind
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_records_stay_tuples_without_a_dictionary() -> None:
    record: ProducerRecord[str, int] = ProducerRecord[str, int]("t", 1, "k")
    assert record == ("t", 1, "k", None, None, (), None)
    assert not hasattr(record, "__dict__")
    assert pickle.loads(pickle.dumps(record)) == record


def test_a_client_with_type_arguments_is_the_client() -> None:
    assert type(Consumer[str, int]("t")) is Consumer
