"""Classic consumer groups.

``group`` has the state of a group; ``rebalance``, ``joining`` and ``membership`` change it, as
plain functions over (group, now) that neither wait nor look at a clock. ``registry`` adds the timer
of each group, and ``coordinator`` the responses that requests wait for.
"""
