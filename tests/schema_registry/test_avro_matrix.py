"""Avro compared with other implementations: schemas and values of hypothesis, written and read as
rows, columns, JSON and by Spark's types, compared with Java's Avro, fastavro and confluent-kafka.

Always a sample; ``pytest -m interop tests/schema_registry/test_avro_matrix.py -s`` compares many
cases and prints the counts. ``AVRO_MATRIX_SEED`` and ``AVRO_MATRIX_CASES`` choose others.
"""

from __future__ import annotations

import os
import random
from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from aioprod.testing.cache import SetupError
from tests.schema_registry.avro_cases import Case, cases
from tests.schema_registry.avro_judges import Confluent, JavaAvro
from tests.schema_registry.avro_matrix import Counts, Matrix

SAMPLE = 60
MANY = 4_000


def compared(count: int, number: int, java: JavaAvro | None) -> Counts:
    """Compare cases of a seed, all of them even if some differ."""
    matrix = Matrix(java, Confluent())

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases())
    def run(case: Case) -> None:
        matrix.compare(case)

    run()
    return matrix.counts


def check(count: int, number: int, java: JavaAvro | None) -> None:
    counts = compared(count, number, java)
    print(f"seed {number}: {counts.report()}")
    assert counts.unexplained == [], f"AVRO_MATRIX_SEED={number}\n" + "\n".join(counts.unexplained)


@pytest.mark.all_packages
def test_a_sample_is_as_others_have_it() -> None:
    try:
        java = JavaAvro()
    except SetupError:
        java = None  # a machine without Java compares with the others
    with java or nullcontext():
        check(SAMPLE, 37, java)


@pytest.mark.interop
@pytest.mark.timeout(3_600)
def test_many_cases_are_as_others_have_them() -> None:
    number = int(os.environ.get("AVRO_MATRIX_SEED") or random.randrange(1 << 32))
    with JavaAvro() as java:
        check(int(os.environ.get("AVRO_MATRIX_CASES") or MANY), number, java)
