"""Transactions of the producer (KIP-98 and later KIPs): states, requests, actions after replies,
and the manager of all.
"""

from __future__ import annotations

from aioprod.producer.transactions.manager import TransactionManager
from aioprod.producer.transactions.states import TransactionState

__all__ = ["TransactionManager", "TransactionState"]
