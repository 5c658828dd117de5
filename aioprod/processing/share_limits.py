"""Checks that a share group delivers records as often as the processor wants."""

from __future__ import annotations

from typing import Any

from aioprod import Admin, ConfigError
from aioprod.admin import ConfigResource

_LIMIT = "share.delivery.count.limit"


async def check_deliveries(group_id: str, wanted: int, shared: dict[str, Any]) -> None:
    """Check the limit of a group: beyond it the broker drops a record that is released.

    Args:
        wanted: the number of deliveries of a record.
        shared: the settings of clients.

    Raises:
        ConfigError: if the limit of the group is lower, or the broker does not tell it.
        KafkaError: if it can't be read, such as GROUP_AUTHORIZATION_FAILED.
    """
    servers = shared.get("bootstrap_servers", "localhost:9092")
    settings = {name: value for name, value in shared.items() if name != "bootstrap_servers"}
    async with Admin(servers, **settings) as admin:
        configs = await admin.describe_configs(ConfigResource.group(group_id), names=[_LIMIT])
    limit = configs[_LIMIT].value if _LIMIT in configs else None
    if limit is None:
        raise ConfigError(
            f"max_deliveries={wanted}: the broker does not tell {_LIMIT} of group {group_id!r}; "
            "only 2 are sure"
        )
    if int(limit) < wanted:
        raise ConfigError(
            f"max_deliveries={wanted}: the broker drops a record of group {group_id!r} that was "
            f"delivered {_LIMIT}={limit} times; raise that, or lower max_deliveries"
        )
