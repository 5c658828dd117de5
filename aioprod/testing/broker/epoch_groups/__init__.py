"""Groups of the consumer protocol (KIP-848): the coordinator assigns partitions, and each member
moves to its assignment in an epoch of its own.

- member.py: what the coordinator knows of one member
- reconciliation.py: which partitions a member may have now, on the way to its target
- assignors.py: the targets of all members
- patterns.py: subscriptions by regular expression
- modern.py: what these groups and share groups have in common
- group.py: the state of a group, and what a heartbeat changes
- classic_members.py: members that speak the classic protocol
- conversion.py: classic groups that become such groups, and the other way round
- checks.py: which requests are valid
"""
