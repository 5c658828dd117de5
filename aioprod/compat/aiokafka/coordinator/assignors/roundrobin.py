"""Names aioprod's roundrobin assignor."""

from __future__ import annotations


class RoundRobinPartitionAssignor:
    """aioprod's roundrobin assignor; the same assignments."""

    name = "roundrobin"
