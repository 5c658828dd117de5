"""The roundrobin assignor under aiokafka's name."""

from __future__ import annotations


class RoundRobinPartitionAssignor:
    """Stands for aioprod's roundrobin assignor, which makes the same assignments."""

    name = "roundrobin"
