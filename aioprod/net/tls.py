"""The TLS context of a connection.

Files are read again after they have changed, so renewed certificates need no restart.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from dataclasses import fields
from weakref import WeakValueDictionary

from aioprod.config.security import SecurityConfig, new_tls_context


class _Recipe(tuple[tuple[object, ...], ...]):
    """The inputs of a context: equal recipes give equal contexts."""

    def __repr__(self) -> str:  # without the password of the private key
        return "<recipe>"


# Contexts are shared while connections use them: reading the system's certificates blocks the event
# loop for about 30 ms.
_contexts: WeakValueDictionary[_Recipe, ssl.SSLContext] = WeakValueDictionary()


def tls_context(config: SecurityConfig) -> ssl.SSLContext | None:
    """Return the context for a new connection; None without TLS.

    Raises:
        ConfigError: if a file can't be read.
    """
    if not config.uses_tls or config.ssl_context is not None:
        return config.ssl_context
    recipe = _Recipe(_parts(config))
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
    # The trusted certificates if no file is given (SSL_CERT_FILE, SSL_CERT_DIR).
    system = ssl.get_default_verify_paths()
    for path in (system.cafile, system.capath):
        yield "system", path, None if path is None else _stamp(path)


def _stamp(path: str | os.PathLike[str]) -> tuple[int, ...]:
    try:
        state = os.stat(path)
    except OSError:
        return ()  # reading it raises an error that names the reason
    # ctime also changes if a file is rewritten with its old modification time.
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
