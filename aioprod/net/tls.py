"""The TLS context of a connection. Files are read again when they have changed, so that renewed certificates need no restart."""

from __future__ import annotations

import os
import ssl
from weakref import WeakValueDictionary

from aioprod.security import SecurityConfig, new_tls_context

# Connections share a context as long as one of them lives: reading the system's certificates takes some 30 ms.
_contexts: WeakValueDictionary[tuple[object, ...], ssl.SSLContext] = WeakValueDictionary()


def tls_context(config: SecurityConfig) -> ssl.SSLContext | None:
    """The context for a new connection; None where it is not encrypted.

    Raises:
        ConfigError: a file can't be read any more.
    """
    if not config.uses_tls or config.ssl_context is not None:
        return config.ssl_context
    files = (config.ssl_truststore_location, config.ssl_keystore_location)
    key = (config.ssl_endpoint_identification_algorithm, *((path, _stamp(path)) for path in files if path is not None))
    context = _contexts.get(key)
    if context is None:
        context = _contexts[key] = new_tls_context(config)
    return context


def _stamp(path: str | os.PathLike[str]) -> tuple[int, int, int]:
    try:
        state = os.stat(path)
    except OSError:
        return (0, 0, 0)  # whoever reads it says why it can't be had
    return (state.st_ino, state.st_mtime_ns, state.st_size)
