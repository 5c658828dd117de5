"""Makes ``import aiokafka`` mean this package."""

from __future__ import annotations

import sys
from importlib import import_module

HOME = "aioprod.compat.aiokafka"
MODULES = (
    "errors",
    "structs",
    "abc",
    "helpers",
    "partitioner",
    "admin",
    "admin.client",
    "admin.config_resource",
    "admin.new_partitions",
    "admin.new_topic",
    "admin.records_to_delete",
    "producer",
    "producer.producer",
    "producer.message_accumulator",
    "consumer",
    "consumer.consumer",
    "coordinator",
    "coordinator.protocol",
    "coordinator.assignors",
    "coordinator.assignors.abstract",
    "coordinator.assignors.range",
    "coordinator.assignors.roundrobin",
    "coordinator.assignors.sticky",
    "coordinator.assignors.sticky.sticky_assignor",
)


def install() -> None:
    """Make ``import aiokafka``, and imports of its modules, return this package.

    Only this process is changed. Call it before the first import of aiokafka; a second call does
    nothing.

    Raises:
        RuntimeError: if aiokafka was already imported, since its names may be in use.
    """
    ours = import_module(HOME)
    present = sys.modules.get("aiokafka")
    if present is ours:
        return
    if present is not None:
        raise RuntimeError(
            f"aiokafka was already imported, from {present.__file__}: call install() before the "
            "first import of aiokafka"
        )
    sys.modules["aiokafka"] = ours
    for name in MODULES:
        sys.modules[f"aiokafka.{name}"] = import_module(f"{HOME}.{name}")
