"""SASL/GSSAPI as bytes: the messages of RFC 4752 around those of a security context."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from aioprod.errors import AuthenticationError
from aioprod.protocol.sasl.gssapi import GssapiClient


@dataclass
class Context:
    """Answers the broker's tokens in turn; a signed message has brackets."""

    answers: list[bytes] = field(default_factory=lambda: [b""])
    got: list[bytes] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.answers

    def step(self, token: bytes) -> bytes:
        self.got.append(token)
        return self.answers.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"[" + message + b"]"

    def unwrap(self, message: bytes) -> bytes:
        if message[:1] + message[-1:] != b"[]":
            raise AuthenticationError("not signed")
        return message[1:-1]


@pytest.mark.parametrize("answers", [[b""], [b"last"], [b"second", b"third", b""]])
def test_tokens_then_no_security_layer_then_the_end(answers: list[bytes]) -> None:
    context = Context(list(answers))
    client = GssapiClient(context, b"first")
    assert client.first_message() == b"first"
    for number, answer in enumerate(answers):
        assert client.answer(b"token %d" % number) == answer
    assert context.got == [b"token %d" % number for number in range(len(answers))]
    assert client.answer(b"[\x07\x00\xff\xff]") == b"[\x01\x00\x00\x00]"
    assert client.answer(b"") is None


def test_a_context_that_is_complete_at_once_goes_on_with_the_layer() -> None:
    client = GssapiClient(Context([]), b"first")
    assert client.answer(b"[\x01\x00\x00\x00]") == b"[\x01\x00\x00\x00]"
    assert client.answer(b"") is None


def test_a_broker_that_does_not_prove_who_it_is() -> None:
    with pytest.raises(AuthenticationError, match="is not authenticated"):
        GssapiClient(Context(), b"first").answer(b"")
    with pytest.raises(AuthenticationError, match="did not complete the exchange"):
        GssapiClient(Context([b"", b""]), b"first").answer(b"token")


@pytest.mark.parametrize(
    ("offer", "text"),
    [
        (b"[\x06\x00\xff\xff]", "requires messages signed or encrypted"),
        (b"[\x01\x00\x00]", "with 3 bytes: must be 4"),
        (b"[]", "with 0 bytes: must be 4"),
        (b"[\x01\x00\x00\x00more]", "with 8 bytes: must be 4"),
        (b"\x01\x00\x00\x00", "not signed"),
        (b"", "not signed"),
    ],
)
def test_an_offer_that_can_not_be_taken(offer: bytes, text: str) -> None:
    client = GssapiClient(Context(), b"first")
    client.answer(b"token")
    with pytest.raises(AuthenticationError, match=text):
        client.answer(offer)


def test_the_repr_has_no_token() -> None:
    assert "first" not in repr(GssapiClient(Context(), b"first"))
