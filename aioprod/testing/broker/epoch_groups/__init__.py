"""Groups of the consumer protocol (KIP-848): the coordinator assigns partitions, and each member
has an epoch and moves to its assignment at its own pace.

- member.py: the coordinator's state of one member, and its way to its target
- assignors.py: the targets of all members
- modern.py: the common parts of these groups and share groups
- group.py: the state of a group, and its changes by heartbeats
- classic_members.py: members that use the classic protocol
- conversion.py: conversion of classic groups to these groups, and back
- checks.py: validation of requests, and of subscriptions by regular expression
"""
