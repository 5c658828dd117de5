"""What all SASL mechanisms have in common, seen from either side."""

from __future__ import annotations

from abc import ABC, abstractmethod


class ClientMechanism(ABC):
    """One authentication, seen from the client: it speaks first, then answers each challenge until
    it is content.

    Made for one use. What it keeps is secret, so its repr is its name only.
    """

    name: str

    @abstractmethod
    def first_message(self) -> bytes:
        """What opens the exchange."""

    @abstractmethod
    def answer(self, challenge: bytes) -> bytes | None:
        """The answer to what the broker said; None where the exchange is complete.

        Raises:
            AuthenticationError: the broker's message makes no sense, or the broker can't prove that
                it knows the password.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ServerMechanism(ABC):
    """One authentication, seen from the broker.

    Attributes:
        user: who has been authenticated, once the exchange is complete; else None.
    """

    name: str
    user: str | None = None

    @abstractmethod
    def respond(self, message: bytes) -> bytes:
        """What to say to the client's message.

        Raises:
            AuthenticationError: the client is refused, with the reason that it may know.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
