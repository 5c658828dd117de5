"""Foreign brokers, for the tests of our clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.interop.programs.foreign_cluster import ForeignCluster
from tests.interop.programs.go_programs import build_client_tests, build_kfake
from tests.interop.programs.kfake_cluster import KfakeCluster, kfake_cluster
from tests.interop.programs.librdkafka_mock import LibrdkafkaMock, librdkafka_mock


@pytest.fixture
async def mock() -> AsyncIterator[LibrdkafkaMock]:
    """Run librdkafka's mock cluster of three nodes."""
    async with librdkafka_mock() as running:
        yield running


@pytest.fixture(scope="session")
def kfake_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile franz-go's fake cluster."""
    return build_kfake(tmp_path_factory.mktemp("kfake"))


@pytest.fixture(scope="session")
def franz_go_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile franz-go's tests of its client."""
    return build_client_tests(tmp_path_factory.mktemp("kgo"))


@pytest.fixture(params=["newest", "2.8", "3.9"])
async def fake(request: pytest.FixtureRequest, kfake_program: Path) -> AsyncIterator[KfakeCluster]:
    """Run three nodes of franz-go's fake cluster, as several versions of Kafka."""
    async with kfake_cluster(kfake_program, request.param.replace("newest", "")) as running:
        yield running


@pytest.fixture(
    params=[
        "librdkafka",
        *(
            pytest.param(f"kfake{version}", marks=pytest.mark.interop)
            for version in ("", "-2.8", "-3.9")
        ),
    ]
)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[ForeignCluster]:
    """Run three nodes of librdkafka's mock cluster, or of franz-go's fake cluster as several
    versions of Kafka.
    """
    name, _, version = request.param.partition("-")
    if name == "kfake":
        async with kfake_cluster(request.getfixturevalue("kfake_program"), version) as running:
            yield running
    else:
        async with librdkafka_mock() as mock:
            yield mock
