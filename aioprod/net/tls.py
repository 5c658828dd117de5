"""The TLS context of a connection.

Files are read again when they have changed, so renewed certificates need no restart.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from weakref import WeakValueDictionary

from aioprod.config.security import SecurityConfig, new_tls_context


@dataclass(frozen=True, slots=True)
class _Recipe:
    """The inputs of a context: equal recipes give equal contexts."""

    # Contains the password of the private key.
    parts: tuple[tuple[object, ...], ...] = field(repr=False)


# Open connections share a context: reading the system's certificates blocks the event loop for
# about 30 ms.
_contexts: WeakValueDictionary[_Recipe, ssl.SSLContext] = WeakValueDictionary()


def tls_context(config: SecurityConfig) -> ssl.SSLContext | None:
    """Return the context for a new connection; None if it is not encrypted.

    Raises:
        ConfigError: if a file can't be read.
    """
    if not config.uses_tls or config.ssl_context is not None:
        return config.ssl_context
    recipe = _Recipe(tuple(_parts(config)))
    context = _contexts.get(recipe)
    if context is None:
        context = _contexts[recipe] = new_tls_context(config)
    return context


def _parts(config: SecurityConfig) -> Iterator[tuple[object, ...]]:
    """Return each TLS setting with its name, its value and the state of its file."""
    for each in fields(config):
        if each.name.startswith("ssl_"):
            value = getattr(config, each.name)
            is_file = value is not None and "Path" in str(each.type)
            yield each.name, value, _stamp(value) if is_file else None
    # Trusted if no file is given (SSL_CERT_FILE, SSL_CERT_DIR).
    system = ssl.get_default_verify_paths()
    for path in (system.cafile, system.capath):
        yield "system", path, None if path is None else _stamp(path)


def _stamp(path: str | os.PathLike[str]) -> tuple[int, ...]:
    try:
        state = os.stat(path)
    except OSError:
        return ()  # reading it raises an error with the reason
    # ctime also changes if a file is rewritten and keeps its old modification time.
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
