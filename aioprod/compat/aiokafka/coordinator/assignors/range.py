"""The range assignor under aiokafka's name."""

from __future__ import annotations


class RangePartitionAssignor:
    """Stands for aioprod's range assignor, which makes the same assignments."""

    name = "range"
