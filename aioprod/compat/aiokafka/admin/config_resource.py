"""An argument of ``describe_configs`` and ``alter_configs``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class ConfigResourceType(IntEnum):
    """The types of resources with settings."""

    BROKER = 4
    TOPIC = 2


class ConfigResource:
    """A topic or a broker, and its settings.

    Args:
        resource_type: the type, or its name, such as ``"topic"``.
        name: the topic, or the broker's node id.
        configs: names and new values. When settings are described, only the names are used; None or
            an empty dict means all settings.
    """

    def __init__(
        self,
        resource_type: ConfigResourceType | str,
        name: str,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            resource_type = ConfigResourceType[str(resource_type).upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs
