"""Logins with Kerberos. Tickets come from the system's Kerberos library, which blocks, and so is
called in threads.

Only the first token needs the Kerberos server (KDC). The library caches tickets: those for a keytab
in memory, those of `kinit` in its credential cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from aioprod.config.security import SecurityConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError, KafkaError
from aioprod.protocol.sasl.gssapi import GssapiClient
from aioprod.threads import in_thread

_DEFAULT_SERVICE = "kafka"
_MOST_THREADS = 4

# Advice by the number of a Kerberos error in krb5.h (RFC 4120, 7.5.9).
_FIRST_ERROR = -1_765_328_384
_KEYTAB = "check sasl_kerberos_keytab and sasl_kerberos_principal"
_SERVICE = (
    "check sasl_kerberos_service_name, the host in advertised.listeners of the broker, and "
    "dns_canonicalize_hostname and rdns in krb5.conf"
)
_RENEW = "request a ticket with kinit, or set sasl_kerberos_keytab"
_CLOCK = "compare the clocks of this machine and of the Kerberos server"
_REALM = "check the realm in krb5.conf (KRB5_CONFIG)"
_ADVICE: Mapping[int, str] = {
    6: _KEYTAB,  # KDC_ERR_C_PRINCIPAL_UNKNOWN
    7: _SERVICE,  # KDC_ERR_S_PRINCIPAL_UNKNOWN
    24: _KEYTAB,  # KDC_ERR_PREAUTH_FAILED
    31: "the keys in the keytab are not those of the principal; export the keytab again",
    32: _RENEW,  # KRB_AP_ERR_TKT_EXPIRED
    37: _CLOCK,  # KRB_AP_ERR_SKEW
    135: f"{_REALM}, or set KRB5_CONFIG",  # KRB5_CONFIG_CANTOPEN
    141: _RENEW,  # KRB5_CC_NOTFOUND
    148: _CLOCK,  # KRB5_KDCREP_SKEW
    154: _REALM,  # KRB5_REALM_UNKNOWN
    181: _KEYTAB,  # KRB5_KT_NOTFOUND
    195: _RENEW,  # KRB5_FCC_NOFILE
    220: _REALM,  # KRB5_REALM_CANT_RESOLVE
    224: _REALM,  # KRB5_CONFIG_NODEFREALM
}
# KRB5_KDC_UNREACH: retried, like a broker that can't be reached.
_UNREACHABLE = 156

# Renewing the tickets of a keytab removes the old ones first, so only one thread may do it.
_keytab_lock = threading.Lock()
# Largest number of threads per event loop that wait for a Kerberos server.
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class _Target(NamedTuple):
    """The service that a login is for, and the credentials to use."""

    service: str  # service@host
    principal: str | None
    keytab: str | None
    ticket_cache: str | None

    @classmethod
    def of(cls, config: SecurityConfig, host: str) -> _Target:
        service = config.sasl_kerberos_service_name or _DEFAULT_SERVICE
        keytab, cache = config.sasl_kerberos_keytab, config.sasl_kerberos_ticket_cache
        return cls(
            f"{service}@{config.sasl_kerberos_domain_name or host}",
            config.sasl_kerberos_principal,
            None if keytab is None else str(keytab),
            None if cache is None else str(cache),
        )


class _Context:
    """A security context of the library. Converts its errors to AuthenticationErrors."""

    def __init__(self, context: Any, error: type[Exception]) -> None:
        self._context = context
        self._error = error

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes) -> bytes:
        return self._call(lambda: self._context.step(token) or b"")

    def wrap(self, message: bytes) -> bytes:
        return self._call(lambda: self._context.wrap(message, False).message)

    def unwrap(self, message: bytes) -> bytes:
        return self._call(lambda: self._context.unwrap(message).message)

    def _call(self, call: Callable[[], bytes]) -> bytes:
        try:
            return bytes(call())
        except self._error as error:
            text = f"the broker's message is not valid: {_text(error)[1]}"
            raise AuthenticationError(text) from None


async def kerberos_login(config: SecurityConfig, host: str, timeout_ms: int) -> GssapiClient:
    """Get a ticket for a broker and prepare the login.

    Args:
        host: the host that the client connects to.
        timeout_ms: limit on the whole call, in milliseconds.

    Raises:
        AuthenticationError: if there is no valid ticket or key, or the Kerberos server refuses the
            request.
        BrokerConnectionError: if no Kerberos server responds within ``timeout_ms``.
    """
    target = _Target.of(config, host)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            outcome = await _in_thread(partial(_outcome, target))
    except TimeoutError:
        outcome = BrokerConnectionError(
            f"Kerberos: no ticket for {target.service} within request_timeout_ms={timeout_ms}"
        )
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


async def _in_thread(
    call: Callable[[], GssapiClient | KafkaError],
) -> GssapiClient | KafkaError:
    """Call the library. A call that exceeds the limit occupies its thread until it returns."""
    loop = asyncio.get_running_loop()
    slots = _slots.get(loop)
    if slots is None:
        slots = _slots[loop] = asyncio.Semaphore(_MOST_THREADS)
    await slots.acquire()

    def kerberos() -> GssapiClient | KafkaError:
        try:
            return call()
        finally:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(slots.release)

    try:
        return await in_thread(kerberos)
    except RuntimeError:  # no thread can be started
        slots.release()
        raise


def _outcome(target: _Target) -> GssapiClient | KafkaError:
    """Prepare a login. Return an error instead of raising it: the caller may be gone."""
    try:
        import gssapi  # the configuration checks that it is installed

        library_error = gssapi.exceptions.GSSError
    except Exception as error:
        return AuthenticationError(f"gssapi can't be imported ({type(error).__name__})")
    try:
        with nullcontext() if target.keytab is None else _keytab_lock:
            context = _new_context(gssapi, target)
            return GssapiClient(_Context(context, library_error), context.step() or b"")
    except library_error as error:
        return _failure(error, target)
    except Exception as error:  # such as a name that is not text
        return AuthenticationError(f"Kerberos: {target.service}: {type(error).__name__}")


def _new_context(gssapi: Any, target: _Target) -> Any:
    kerberos, flag = gssapi.MechType.kerberos, gssapi.RequirementFlag
    name = target.principal and gssapi.Name(target.principal, gssapi.NameType.kerberos_principal)
    # Acquired for each login: the library then requests a new ticket with the keytab if needed.
    credentials = gssapi.Credentials(
        name=name, usage="initiate", mechs=[kerberos], store=_store(target)
    )
    return gssapi.SecurityContext(
        name=gssapi.Name(target.service, gssapi.NameType.hostbased_service),
        creds=credentials,
        usage="initiate",
        mech=kerberos,
        flags=[flag.mutual_authentication, flag.integrity, flag.out_of_sequence_detection],
    )


def _store(target: _Target) -> dict[str, str] | None:
    """Return where keys and tickets are stored; None for the environment's defaults."""
    if target.keytab is not None:
        used = f"{target.keytab}\0{target.principal or ''}".encode()
        cache = f"MEMORY:aioprod-{hashlib.sha256(used).hexdigest()}"
        return {"client_keytab": target.keytab, "ccache": cache}
    if target.ticket_cache is not None:
        return {"ccache": target.ticket_cache}
    return None


def _failure(error: Any, target: _Target) -> KafkaError:
    number, text = _text(error)
    if number == _UNREACHABLE:
        return BrokerConnectionError(f"Kerberos: {text}")
    advice = _ADVICE.get(number, "")
    if target.keytab is not None and advice == _RENEW:
        # The keytab has no such key, but the library's error names the ticket cache.
        text, advice = f"no ticket with the keys of {target.keytab}", _KEYTAB
    who = f"Kerberos: {target.service}: "
    return AuthenticationError(f"{who}{text}{f'; {advice}' if advice else ''}")


def _text(error: Any) -> tuple[int, str]:
    """Return the error number, as in krb5.h if it is a Kerberos error, and the library's text."""
    number = int(error.min_code) & 0xFFFFFFFF
    texts = error.get_all_statuses(error.min_code, False) if number else []
    texts = [text for text in texts if text] or error.get_all_statuses(error.maj_code, True)
    return number - (_FIRST_ERROR & 0xFFFFFFFF), "; ".join(texts)
