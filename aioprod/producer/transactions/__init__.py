"""Transactions of the producer (KIP-98 and what grew from it): states, requests, what answers mean,
and the manager of it all.
"""

from __future__ import annotations

from aioprod.producer.transactions.manager import TransactionManager
from aioprod.producer.transactions.states import TransactionState

__all__ = ["TransactionManager", "TransactionState"]
