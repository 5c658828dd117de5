"""Transactions of the producer (KIP-98 and later KIPs): states, requests, actions after replies,
and the manager of all. Only a producer with a ``transactional_id`` imports more than the gate.
"""
