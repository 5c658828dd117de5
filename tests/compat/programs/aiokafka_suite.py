"""A pytest plug-in that runs aiokafka's own tests: with an embedded broker in place of their
``conftest.py`` and its Docker image, on aiokafka or on the layer.

``AIOKAFKA_TESTS_CLIENT`` is "aiokafka" or "aioprod". Their test modules import parts of aiokafka
that the layer does not have. A stand-in takes their place, so that only tests which use it fail.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from unittest import mock

import pytest

from aioprod.testing import EmbeddedCluster

VERSION = "2.8.1"


class _Parts(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of aiokafka that the layer does not have."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("aiokafka."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def exec_module(self, module):
        def stand_in(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__init__": _not_there})

        module.__getattr__ = stand_in
        if module.__name__ == "aiokafka.util":
            module.create_task = lambda coroutine: asyncio.get_event_loop().create_task(coroutine)
            module.create_future = lambda loop=None: asyncio.get_event_loop().create_future()
            module.get_running_loop = asyncio.get_running_loop


def _not_there(self, *arguments, **keywords):
    raise NotImplementedError(f"the layer has no {type(self).__name__}")


if os.environ["AIOKAFKA_TESTS_CLIENT"] == "aioprod":
    import aioprod.compat.aiokafka

    aioprod.compat.aiokafka.install()
    sys.meta_path.append(_Parts())
    for _module, _name in (
        ("client", "AIOKafkaClient"),
        ("consumer", "fetcher"),
    ):
        _found = importlib.import_module(f"aiokafka.{_module}")
        if not hasattr(_found, _name):
            setattr(_found, _name, mock.MagicMock() if _name == "fetcher" else type(_name, (), {}))


async def _wait_topic(self, client, topic):
    assert await client._wait_on_metadata(topic)


def pytest_collection_modifyitems(items):
    from tests._testutil import KafkaIntegrationTestCase

    KafkaIntegrationTestCase.wait_topic = _wait_topic


@pytest.fixture(scope="session")
def cluster():
    with EmbeddedCluster.in_thread(num_partitions=2) as broker:
        yield broker


@pytest.fixture(scope="class")
def loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    if not loop.is_closed():
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def collect_garbage():
    yield
    gc.collect()


@pytest.fixture(scope="class")
def setup_test_class(request, loop, cluster, tmp_path_factory):
    host, _, port = cluster.bootstrap_servers.partition(":")
    kind = request.cls
    kind.TEST_TIMEOUT = 60  # one waits 40 s for a timeout
    kind.loop = loop
    kind.kafka_host, kind.kafka_port, kind.hosts = host, int(port), [cluster.bootstrap_servers]
    kind.kafka_ssl_port = kind.kafka_sasl_plain_port = kind.kafka_sasl_ssl_port = 1
    kind.ssl_folder = tmp_path_factory.mktemp("ssl")
    kind.acl_manager = kind.kerberos_utils = kind.kafka_config = None
    kind.kafka_version = VERSION
