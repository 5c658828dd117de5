"""Wrong arguments that all clients share are refused: limits of calls, sources of time and random
numbers, settings.
"""

from __future__ import annotations

import asyncio
import datetime
import inspect
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioprod import Admin, ConfigError, Consumer, Producer, TopicPartition
from aioprod.admin import ClientQuotaEntity, ConfigResource, ElectionType, NewTopic, OffsetSpec
from aioprod.testing import EmbeddedCluster

CLIENTS: list[type[Producer | Consumer | Admin]] = [Producer, Consumer, Admin]
TP = TopicPartition("t", 0)
TOPIC = ConfigResource.topic("t")
# What the methods with a limit are given in addition, by name, and for some by (client, method,
# name).
ARGUMENTS: dict[str | tuple[str, str], Any] = {
    "partitions": [TP],
    ("create_partitions", "partitions"): {"t": 2},
    "partition": TP,
    "timestamps": {TP: 0},
    "topic": "t",
    "topics": ["t"],
    ("create_topics", "topics"): [NewTopic("u")],
    "limits": {ClientQuotaEntity("u"): {"producer_byte_rate": 1.0}},
    "group_id": "g",
    "key": "g",
    "group_ids": ["g"],
    "group_instance_ids": ["i"],
    "offsets": {TP: 0},
    "reassignments": {TP: [1]},
    "before": {TP: 0},
    "resources": [TOPIC],
    "brokers": [1],
    "transactional_ids": ["x"],
    "election_type": ElectionType.PREFERRED,
    "changes": {TOPIC: {"retention.ms": "1"}},
    "specs": {TP: OffsetSpec.LATEST},
    "acls": [],
    "selected": [],
    ("alter_user_scram_credentials", "changes"): [],
    "token": b"hmac",
}
WRONG_LIMITS: list[Any] = [
    10**400,
    10**5_000,
    -1,
    -(10**5_000),
    math.nan,
    -math.inf,
    True,
    "5",
    b"5",
    [],
    datetime.timedelta(seconds=1),
]


def limited() -> list[tuple[type[Any], str]]:
    """The methods of all clients that take a limit."""
    return [
        (client, name)
        for client in CLIENTS
        for name, method in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_") and "timeout_ms" in inspect.signature(method).parameters
    ]


def call(client: Any, name: str, limit: object) -> Awaitable[object]:
    method = getattr(client, name)
    given = []
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            given += ARGUMENTS[parameter.name]
        elif parameter.default is parameter.empty:
            own = (name, parameter.name)
            given.append(ARGUMENTS[own if own in ARGUMENTS else parameter.name])
    return method(*given, timeout_ms=limit)  # type: ignore[no-any-return]


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_wrong_limit_of_a_call_is_named_and_nothing_is_asked(
    broker: EmbeddedCluster, client: type[Any]
) -> None:
    broker.create_topic("t", 1)
    async with client(bootstrap_servers=broker.bootstrap_servers) as running:
        if client is Consumer:
            running.assign([TP])
            await running.position(TP)
        for name in [name for owner, name in limited() if owner is client]:
            for limit in WRONG_LIMITS:
                with pytest.raises(ConfigError, match=r"timeout_ms=.*: must be a "):
                    async with asyncio.timeout(5):
                        await call(running, name, limit)


async def test_limits_may_be_as_large_as_can_be_counted(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    async with (
        Producer(broker.bootstrap_servers) as producer,
        Admin(broker.bootstrap_servers) as admin,
        asyncio.timeout(5),
    ):
        await producer.send("t", b"x")
        await producer.flush(10**300)
        assert "t" in await admin.list_topics(timeout_ms=10**300)
        await producer.close(10**300)


SOURCES: list[tuple[str, Any]] = [
    ("clock", 5),
    ("clock", "now"),
    ("rng", 5),
    ("rng", "seed"),
    ("rng", random.random),
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("name", "wrong"), SOURCES, ids=["clock 5", "clock text", "rng 5", "rng text", "rng function"]
)
def test_sources_of_time_and_random_numbers_are_checked(
    client: Callable[..., object], name: str, wrong: object
) -> None:
    if name in inspect.signature(client).parameters:
        with pytest.raises(ConfigError, match=f"^{name}=.*: must be a "):
            client(**{name: wrong})


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "wrong",
    [None, 5, "sasl.password=hunter2", b"hunter2", [], [("sasl.password", "hunter2")], {"hunter2"}],
    ids=repr,
)
def test_settings_that_are_no_mapping_are_refused_and_not_shown(
    client: type[Any], wrong: object
) -> None:
    with pytest.raises(ConfigError, match="must be a mapping") as caught:
        client.from_config(wrong)
    assert "hunter2" not in str(caught.value)
    frame = caught.tb
    while frame is not None:
        if frame.tb_frame.f_globals["__name__"].startswith("aioprod."):
            assert "hunter2" not in repr(frame.tb_frame.f_locals)
        frame = frame.tb_next  # type: ignore[assignment]
