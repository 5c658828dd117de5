"""The base classes of ``aiokafka.abc``."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class ConsumerRebalanceListener(abc.ABC):
    """Base class of listeners of ``subscribe``; the methods may be coroutines.

    They run in the background while the group rebalances, and may call the consumer. An exception
    is logged.
    """

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> Any:
        """Handle a set of partitions that are about to be revoked; empty before the first
        assignment.
        """

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> Any:
        """Handle a set of partitions before their first record is fetched."""


class AbstractTokenProvider(abc.ABC):
    """Base class of providers of tokens for SASL/OAUTHBEARER."""

    @abc.abstractmethod
    async def token(self) -> str:
        """Return a token; called for each new connection."""

    def extensions(self) -> Mapping[str, str]:
        """Return names and values to send with the token."""
        return {}
