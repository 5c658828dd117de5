"""The sticky assignor under aiokafka's name."""

from __future__ import annotations


class StickyPartitionAssignor:
    """Stands for aioprod's sticky assignor. A group may have members of both clients."""

    name = "sticky"
