"""Fixtures: a broker of each release."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aioprod.testing.jars import KAFKA_VERSIONS
from aioprod.testing.real_kafka import RealKafka
from tests.strangers.releases import RELEASES, Release


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here run on demand, in one process, release by release."""
    for item in items:
        if "strangers" in item.path.parts:
            item.add_marker(pytest.mark.strangers)
            item.add_marker(pytest.mark.xdist_group("strangers"))
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session", params=[*RELEASES, *KAFKA_VERSIONS])
def release(request: pytest.FixtureRequest) -> Iterator[tuple[tuple[int, ...], str]]:
    """Major and minor number of a release, and the address of its broker."""
    version: str = request.param
    numbers = tuple(map(int, version.split(".")))[:2]
    if version in RELEASES:
        with Release(version) as broker:
            yield numbers, broker.bootstrap_servers
    else:
        with RealKafka(version=version) as kafka:
            yield numbers, kafka.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_2_1() -> Iterator[str]:
    """The address of a broker that stores old formats of records, if a topic says so."""
    with Release("2.1.1") as broker:
        yield broker.bootstrap_servers
