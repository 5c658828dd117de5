"""Checks the settings of Kerberos (GSSAPI)."""

from __future__ import annotations

from importlib import import_module

from aioprod.errors import ConfigError

_PREFIX = "sasl_kerberos_"
KERBEROS = tuple(
    _PREFIX + name
    for name in ("service_name", "principal", "keytab", "ticket_cache", "domain_name")
)


def check_kerberos(config: object) -> None:
    """Check that the settings do not contradict each other, and that the library is installed.

    Raises:
        ConfigError: if a setting is invalid, or the library is missing.
    """
    values = {name: getattr(config, name) for name in KERBEROS}
    for name, value in values.items():
        if value is not None and (not str(value) or "\0" in str(value)):
            raise ConfigError(f"{name}: must not be empty or contain the character NUL")
    service = values["sasl_kerberos_service_name"] or ""
    if "@" in service or "/" in service:
        raise ConfigError(
            f"sasl_kerberos_service_name={service!r}: must be the first part of a principal, such "
            "as 'kafka' of kafka/host@REALM"
        )
    both = [f"{_PREFIX}keytab", f"{_PREFIX}ticket_cache"]
    if all(values[name] is not None for name in both):
        raise ConfigError(f"{' and '.join(both)} are both set: set one of them")
    try:
        import_module("gssapi")
    except Exception as error:  # without the system's library: OSError, or an exception of gssapi
        reason = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        raise ConfigError(
            "sasl_mechanism='GSSAPI' needs gssapi and the system's Kerberos library"
            f'{reason}: pip install "aioprod[kerberos]"'
        ) from None
