"""Names aioprod's range assignor."""

from __future__ import annotations


class RangePartitionAssignor:
    """aioprod's range assignor; the same assignments."""

    name = "range"
