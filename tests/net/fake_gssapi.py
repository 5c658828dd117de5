"""Stands in for the library gssapi: it fails as a test needs it, and need not be installed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any


class GSSError(Exception):
    """An error of the library."""

    def __init__(self, major: int, minor: int, texts: Sequence[str]) -> None:
        super().__init__("the text of gssapi")
        self.maj_code, self.min_code = major, minor
        self._texts = list(texts)

    def get_all_statuses(self, code: int, is_maj: bool) -> list[str]:
        return ["of the major code"] if is_maj else self._texts


class FakeGssapi:
    """The names that the client uses.

    Attributes:
        error: raised when credentials are acquired.
        gate: awaited before credentials are acquired.
        entered, entering: how many threads wait or have waited.
        stores: where credentials were looked for.
    """

    MechType = SimpleNamespace(kerberos="kerberos")
    NameType = SimpleNamespace(kerberos_principal="principal", hostbased_service="service")
    RequirementFlag = SimpleNamespace(
        mutual_authentication=1, integrity=2, out_of_sequence_detection=3
    )
    exceptions = SimpleNamespace(GSSError=GSSError)

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = 0
        self.entering = threading.Semaphore(0)
        self.stores: list[object] = []
        self.names: list[tuple[str, str]] = []

    def Name(self, text: str, kind: str) -> str:
        self.names.append((text, kind))
        return text

    def Credentials(self, *, store: object, **settings: Any) -> object:
        self.entered += 1
        self.entering.release()
        self.stores.append(store)
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        return object()

    def SecurityContext(self, **settings: Any) -> Any:
        def step(token: bytes | None = None) -> bytes:
            if token is not None:
                raise GSSError(0x90000, 0, [])  # a token that is not valid
            return b"first"

        return SimpleNamespace(complete=False, step=step)
