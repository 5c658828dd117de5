"""Base classes of the SASL mechanisms, for either side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from aioprod.foreign_text import reason_of, secret_forms


class ClientMechanism(ABC):
    """The client's side of one authentication: sends the first message, then answers each
    challenge until the exchange is complete.

    Use an object once. It has secrets, so its repr has only the name of the mechanism.

    Attributes:
        on_refused: to call if the broker refuses the login, or None.
    """

    name: str
    on_refused: Callable[[], object] | None = None

    @abstractmethod
    def first_message(self) -> bytes:
        """Return the message that begins the exchange."""

    @abstractmethod
    def answer(self, challenge: bytes) -> bytes | None:
        """Return the answer to the broker's message; None if the exchange is complete.

        Raises:
            AuthenticationError: if the broker's message is not valid, or does not prove that the
                broker knows the password.
        """

    def reason(self, said: str | None) -> str:
        """Return what the broker said for an error: a broker may repeat the password."""
        return reason_of(said, secret_forms(*self._secrets()))

    def _secrets(self) -> tuple[str, ...]:
        return ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ServerMechanism(ABC):
    """The broker's side of one authentication.

    Attributes:
        user: the authenticated user, once the exchange is complete; else None.
    """

    name: str
    user: str | None = None

    @abstractmethod
    def respond(self, message: bytes) -> bytes:
        """Return the answer to the client's message.

        Raises:
            AuthenticationError: if the client is refused; the message may be sent to it.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
