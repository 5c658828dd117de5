"""Classic consumer groups.

``group`` has the state of a group. ``rebalance``, ``joining`` and ``membership`` change it with
synchronous functions over (group, now) that do not wait or read a clock. ``registry`` adds a timer
for each group, and ``coordinator`` the responses that requests wait for.
"""
