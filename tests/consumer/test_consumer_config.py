"""The consumer's settings: documented as they are, checked by themselves and against one
another.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from aioprod import ConfigError, Consumer
from aioprod.config.client import ClientConfig
from aioprod.config.consumer import ConsumerConfig
from aioprod.config.keywords.consumer import ConsumerSettings

OWN = {
    field.name: field
    for field in fields(ConsumerConfig)
    if field.name not in {each.name for each in fields(ClientConfig)}
}


def test_type_checkers_know_every_setting() -> None:
    parameters = {"key_deserializer", "value_deserializer"}  # of Consumer, which give it its types
    assert set(ConsumerSettings.__annotations__) >= set(OWN) - parameters


async def decode_later(topic: str, headers: object, data: bytes) -> str:
    return data.decode()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"max_poll_records": 0}, "max_poll_records=0: must be from 1"),
        ({"isolation_level": "serializable"}, "isolation_level="),
        ({"group_protocol": "new", "group_id": "g"}, "group_protocol="),
        ({"auto_offset_reset": "first"}, "auto_offset_reset='first'"),
        ({"fetch_max_wait_ms": 30_000}, "must be below request_timeout_ms=30000"),
        ({"group_id": ""}, "group_id=''"),
        ({"group_instance_id": "a"}, "needs a group_id"),
        (
            {"group_id": "g", "heartbeat_interval_ms": 45_000},
            "must be below session_timeout_ms=45000",
        ),
        ({"partition_assignment_strategy": "range"}, "must be a list of assignors"),
        ({"partition_assignment_strategy": ()}, "must be a list of assignors"),
        ({"value_deserializer": 5}, "value_deserializer=.*must be a function or an object"),
        ({"key_deserializer": decode_later}, "key_deserializer=.*must not be a coroutine function"),
        ({"interceptors": [5]}, "5 is not a ConsumerInterceptor"),
        ({"interceptors": "x"}, "must be a list"),
        ({"check_crcs": 1}, "check_crcs=1"),
        ({"client_rack": 5}, "client_rack=5"),
        ({"max_buffered_bytes": 1.5}, "max_buffered_bytes=1.5: must be a whole number"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Consumer(**settings)


def test_client_ids() -> None:
    assert re.fullmatch(r"aioprod-consumer-\d+", Consumer().config.client_id)
    assert re.fullmatch(r"aioprod-consumer-g-\d+", Consumer(group_id="g").config.client_id)
    assert Consumer(client_id="mine").config.client_id == "mine"
