"""The SCRAM users that requests have created (KIP-554), without their passwords."""

from __future__ import annotations

from collections.abc import Iterable

from aioprod.protocol.sasl.scram import ScramCredential

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Kafka's numbers for the mechanisms."""


class ScramUsers:
    """Credentials by user and mechanism."""

    def __init__(self) -> None:
        self._users: dict[str, dict[str, ScramCredential]] = {}

    @property
    def names(self) -> Iterable[str]:
        """All users."""
        return self._users.keys()

    def of(self, user: str) -> dict[str, ScramCredential]:
        """Return the credentials of a user by mechanism."""
        return self._users.get(user, {})

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return one credential, or None if it does not exist."""
        return self.of(user).get(mechanism)

    def set(self, mechanism: str, user: str, credential: ScramCredential) -> None:
        """Add or replace a credential."""
        self._users.setdefault(user, {})[mechanism] = credential

    def remove(self, mechanism: str, user: str) -> bool:
        """Remove a credential; return False if it does not exist."""
        own = self._users.get(user, {})
        removed = own.pop(mechanism, None)
        if not own:
            self._users.pop(user, None)
        return removed is not None
