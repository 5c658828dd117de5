"""Names aioprod's sticky assignor."""

from __future__ import annotations


class StickyPartitionAssignor:
    """aioprod's sticky assignor; members of both clients can be in a group."""

    name = "sticky"
