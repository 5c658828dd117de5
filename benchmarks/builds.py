"""The builds of the interpreter and of aioprod that are measured."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import sysconfig

from aioprod import native

_DISTRIBUTIONS = ("debian", "ubuntu")
"""They build with PGO and LTO, and remove the options from sysconfig."""


def interpreter() -> str:
    """Return the implementation, version and build of this interpreter. Without profile-guided and
    link-time optimization, Python code takes 20-30 % longer.
    """
    options = " ".join(
        str(sysconfig.get_config_var(name))
        for name in ("CONFIG_ARGS", "PY_CORE_CFLAGS", "PY_CORE_LDFLAGS")
    )
    pgo = "--enable-optimizations" in options or "-fprofile-use" in options
    lto = "--with-lto" in options or "-flto" in options
    if sys.base_prefix == "/usr" and _distribution() in _DISTRIBUTIONS:
        pgo = lto = True
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{name} {'with' if pgo else 'without'} PGO, {'with' if lto else 'without'} LTO"


def aioprod() -> str:
    """Return whether aioprod's accelerator is in use in this process."""
    if native.in_use:
        return "with the accelerator"
    return f"without the accelerator: {native.reason_not_in_use}"


def package(name: str) -> str:
    """Return a client's name and version."""
    return f"{name} {importlib.metadata.version(name)}"


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["ID"]
    except OSError:
        return ""
