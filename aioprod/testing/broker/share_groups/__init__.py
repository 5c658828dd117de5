"""Share groups (KIP-932): members acquire records of the same partitions, and the partition leaders
keep the state of each record.

- records.py: the state of one record
- share_partition.py: the records of one partition for one group
- share_partitions.py: all such partitions, and their timers
- dead_records.py: the records that are not delivered again
- sessions.py: the share sessions of members at a node
- group.py: members, epochs and assignments
"""
