"""Classic consumer groups: who is a member, and which generation of the group shares out what.

``group`` holds a group's state, ``rebalance``, ``joining`` and ``membership`` change it: plain
functions over (group, now) that neither wait nor look at a clock. ``coordinator`` adds both: the
timer of each group, and the answers that requests wait for.
"""
