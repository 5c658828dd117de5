"""The declarations of an admin client's settings."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.config.checks import list_of
from aioprod.config.setting import Section, Setting, Source, milliseconds, section
from aioprod.config.settings.client import CONNECTIONS, METRICS_PUSH
from aioprod.config.settings.security import SECURITY
from aioprod.metrics import AdminObserver

#: The settings that only admin clients have, or with another default.
ADMIN_ONLY: Section = section(
    CONNECTIONS["connections_max_idle_ms"]._replace(default=300_000),
    milliseconds(
        "default_api_timeout_ms",
        60_000,
        1,
        "Timeout of calls without their own `timeout_ms`, including retries.",
        since="2.5, KIP-533",
    ),
    METRICS_PUSH._replace(default=False),
    Setting(
        "observers",
        "Sequence[AdminObserver]",
        (),
        "`AdminObserver` objects, which are called for each call and connection.",
        list_of(AdminObserver),
        kafka_name=None,
        source=Source.PLUGINS,
    ),
)
ADMIN_SETTINGS: Mapping[str, Setting] = {**SECURITY, **CONNECTIONS, **ADMIN_ONLY}
