"""Connections by node: a slow broker does not delay requests that any broker can answer, and tasks
that wait for a broker get an error when its connection ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError, BrokerError
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.testing import EmbeddedCluster
from tests.waiting import until

LIMIT_SECONDS = 5.0


@pytest.fixture
async def many() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=6) as broker:
        yield broker


def node_of(broker: EmbeddedCluster, node_id: int, *, at: int | None = None) -> BrokerAddress:
    """Return a node as in metadata; ``at``: with the address of another one."""
    host, _, port = broker.address(at or node_id).rpartition(":")
    return BrokerAddress(node_id, host, int(port))


@asynccontextmanager
async def brokers_of(
    bootstrap_servers: str,
    *,
    seed: int = 1,
    on_misrouted: Callable[[str], object] = lambda _: None,
    **settings: Any,
) -> AsyncIterator[Brokers]:
    brokers = Brokers(
        ClientConfig(bootstrap_servers=bootstrap_servers, **settings),  # type: ignore[arg-type]
        random.Random(seed),
        on_misrouted=on_misrouted,
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            yield brokers
    finally:
        await brokers.close()


@pytest.mark.parametrize("known", [True, False])
async def test_silent_brokers_do_not_keep_the_others_from_being_asked(
    many: EmbeddedCluster, known: bool
) -> None:
    for node_id in (1, 2, 3, 5, 6):
        many.freeze_node(node_id)
    async with brokers_of(many.bootstrap_servers) as brokers:
        if known:
            brokers.update_nodes({node_id: node_of(many, node_id) for node_id in many.node_ids})
        assert (await brokers.any()).address == many.address(4)


async def test_brokers_that_refuse_are_passed_at_once(many: EmbeddedCluster) -> None:
    addresses = [many.address(node_id) for node_id in many.node_ids]
    for node_id in many.node_ids[1:]:
        await many.stop_node(node_id)
    loop = asyncio.get_running_loop()
    started = loop.time()
    for seed in range(10):  # several orders of the addresses
        async with brokers_of(",".join(addresses), seed=seed) as brokers:
            assert (await brokers.any()).address == addresses[0]
    # Waiting a quarter of a second for each refusing broker would take six seconds.
    assert loop.time() - started < 2


async def test_who_waits_for_a_broker_that_moves_is_reported_and_not_cancelled(
    many: EmbeddedCluster,
) -> None:
    many.freeze_node(1)
    async with brokers_of(many.address(1)) as brokers:
        brokers.update_nodes({1: node_of(many, 1)})
        waiting = asyncio.create_task(brokers.connection(1))
        await until(lambda: many.connection_count(1) == 1)
        brokers.update_nodes({1: node_of(many, 1, at=2)})
        with pytest.raises(BrokerConnectionError):
            await waiting
        assert (await brokers.connection(1)).address == many.address(2)


async def test_cancelling_one_who_waits_leaves_the_connection_to_the_others(
    many: EmbeddedCluster,
) -> None:
    many.freeze_node(1)
    async with brokers_of(many.address(1)) as brokers:
        brokers.update_nodes({1: node_of(many, 1)})
        first, second = (asyncio.create_task(brokers.connection(1)) for _ in range(2))
        await until(lambda: many.connection_count(1) == 1)
        first.cancel()
        many.unfreeze_node(1)
        assert (await second).address == many.address(1)
        assert first.cancelled()
        assert many.connection_count(1) == 1


async def test_forgetting_the_nodes_releases_the_bootstrap_server_too(
    many: EmbeddedCluster,
) -> None:
    """Otherwise the client would ask a server that answers REBOOTSTRAP_REQUIRED forever."""
    async with brokers_of(",".join(many.address(node_id) for node_id in (1, 2))) as brokers:
        first = await brokers.any()
        brokers.forget_nodes()
        assert first.closed
        assert not (await brokers.any()).closed


async def test_after_all_has_failed_the_error_names_every_address_once(
    many: EmbeddedCluster,
) -> None:
    addresses = [many.address(node_id) for node_id in (1, 2)]
    await many.stop_all()
    async with brokers_of(",".join(addresses)) as brokers:
        brokers.update_nodes({1: node_of(many, 1)})
        with pytest.raises(BrokerConnectionError, match="no broker responds") as failure:
            await brokers.any()
        assert [str(failure.value).count(address) for address in addresses] == [1, 1]


async def test_without_a_way_back_only_known_brokers_are_asked(many: EmbeddedCluster) -> None:
    await many.stop_node(2)
    async with brokers_of(
        many.address(1),
        metadata_recovery_strategy="none",
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=1,
    ) as brokers:
        assert (await brokers.any()).address == many.address(1)  # at first there is nothing else
        brokers.update_nodes({2: node_of(many, 2)})
        await many.stop_node(1)
        await many.start_node(1)
        await until(lambda: brokers.connected == 0)
        with pytest.raises(BrokerConnectionError, match=many.address(2)):
            await brokers.any()


@pytest.mark.parametrize(
    ("known", "settings"),
    [
        (False, {}),
        (True, {"metadata_cluster_check_enable": False}),
        (True, {"metadata_recovery_strategy": "none"}),
    ],
)
async def test_without_a_check_any_broker_will_do(
    many: EmbeddedCluster, known: bool, settings: dict[str, Any]
) -> None:
    async with brokers_of(many.address(1), **settings) as brokers:
        brokers.cluster_id = many._cluster.cluster_id if known else None
        brokers.update_nodes({1: node_of(many, 1, at=2)})
        assert (await brokers.connection(1)).address == many.address(2)


@pytest.mark.parametrize(("other", "node_id"), [("", 1), ("x", 2), ("x", 1)])
async def test_a_connection_that_leads_elsewhere_is_refused_and_reported(
    many: EmbeddedCluster, other: str, node_id: int
) -> None:
    reported: list[str] = []
    async with brokers_of(many.address(1), on_misrouted=reported.append) as brokers:
        brokers.cluster_id = many._cluster.cluster_id + other
        brokers.update_nodes({node_id: node_of(many, node_id, at=2)})
        with pytest.raises(BrokerError) as failure:
            await brokers.connection(node_id)
        assert failure.value.code == ErrorCode.REBOOTSTRAP_REQUIRED
        assert reported == [many.address(2)]
        brokers.cluster_id = many._cluster.cluster_id
        brokers.update_nodes({2: node_of(many, 2)})
        assert (await brokers.connection(2)).address == many.address(2)
