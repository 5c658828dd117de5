"""Fixtures: a broker of each release."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aioprod.testing.jars import KAFKA_VERSIONS
from aioprod.testing.real_kafka import RealKafka
from tests.strangers.releases import RELEASES, Release

OLDEST = RELEASES[0]


# One of each kind, with the oldest release, is part of `pytest --all`.
ALWAYS = (
    "test_releases.py::test_a_classic_group_continues_from_its_commit[2.1.1]",
    "test_old_record_formats.py::test_all_readers[0.10.2-gzip]",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Most tests here run on demand, in one process, release by release."""
    for item in items:
        if "strangers" in item.path.parts:
            marker = "kafka" if item.nodeid.endswith(ALWAYS) else "strangers"
            item.add_marker(marker)
            item.add_marker(pytest.mark.xdist_group("brokers" if marker == "kafka" else marker))
            builds = "tansu" in getattr(item, "fixturenames", ())  # if it is not in the cache
            item.add_marker(pytest.mark.timeout(3_900 if builds else 300))


@pytest.fixture(scope="session", params=[*RELEASES, *KAFKA_VERSIONS])
def release(request: pytest.FixtureRequest) -> Iterator[tuple[tuple[int, ...], str]]:
    """Major and minor number of a release, and the address of its broker."""
    version: str = request.param
    numbers = tuple(map(int, version.split(".")))[:2]
    if version == OLDEST:
        yield numbers, request.getfixturevalue("kafka_2_1")
    elif version in RELEASES:
        with Release(version) as broker:
            yield numbers, broker.bootstrap_servers
    else:
        with RealKafka(version=version) as kafka:
            yield numbers, kafka.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_2_1() -> Iterator[str]:
    """The address of a broker that stores old formats of records, if a topic says so."""
    with Release(OLDEST) as broker:
        yield broker.bootstrap_servers
