"""Base classes of the SASL mechanisms, for clients and brokers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from aioprod.foreign_text import reason_of
from aioprod.secret_forms import secret_forms


class ClientMechanism(ABC):
    """The client's side of one authentication: sends the first message, then responds to each
    challenge until the exchange is complete.

    An object is used once. It contains secrets, so its repr only shows the name of the mechanism.

    Attributes:
        on_refused: called if the broker refuses the login; may be None.
    """

    name: str
    on_refused: Callable[[], object] | None = None

    @abstractmethod
    def first_message(self) -> bytes:
        """Return the message that begins the exchange."""

    @abstractmethod
    def answer(self, challenge: bytes) -> bytes | None:
        """Return the response to the broker's message; None if the exchange is complete.

        Raises:
            AuthenticationError: if the broker's message is invalid, or does not prove that the
                broker knows the password.
        """

    def reason(self, said: str | None) -> str:
        """Return the broker's text for an error, without secrets that it may repeat."""
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
        """Return the response to the client's message.

        Raises:
            AuthenticationError: if the client is refused. The text may be sent to the client.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
