"""Builds the accelerator ``aioprod._native``, if there is a C compiler; else the wheel is pure
Python.

``AIOPROD_PURE=1`` leaves it out, ``AIOPROD_NATIVE=required`` fails if it can't be built.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = "aioprod/_c"
FLAGS = ["-O3", "-g0", "-Wall", "-Wextra", "-fvisibility=hidden"]


class NativeBuildHook(BuildHookInterface[Any]):
    """Compiles for CPython's stable ABI: one library serves the Python that builds it and all later
    versions.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        reason = _why_not()
        if not reason:
            try:
                library = self._compile()
            except Exception as error:  # no compiler, no headers, or no room: all are one to us
                reason = f"it does not compile: {error}"
        if reason:
            if os.environ.get("AIOPROD_NATIVE") == "required":
                raise RuntimeError(f"aioprod._native is required, but {reason}")
            self.app.display_warning(f"aioprod is installed as pure Python: {reason}")
            return
        self.app.display_info(f"aioprod is installed with its accelerator: {library.name}")
        build_data["pure_python"] = False
        # Not cp311: built with the headers of 3.12 or newer, it would crash 3.11.
        version_tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["tag"] = f"{version_tag}-abi3-{_platform_tag()}"
        if version != "editable":
            build_data["force_include"][str(library)] = f"aioprod/{library.name}"

    def _compile(self) -> Path:
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        sources = sorted(str(path) for path in Path(self.root, SOURCES).glob("*.c"))
        flags = [] if sys.platform == "win32" else FLAGS
        extension = Extension(
            "aioprod._native", sources, extra_compile_args=flags, py_limited_api=True
        )
        command = build_ext(Distribution({"name": "aioprod", "ext_modules": [extension]}))
        with tempfile.TemporaryDirectory() as directory:
            command.build_temp = directory
            command.build_lib = self.root
            command.force = True  # a library that is there may be for another architecture
            command.ensure_finalized()
            command.run()
        return Path(self.root) / command.get_ext_filename("aioprod._native")


def _platform_tag() -> str:
    """From macOS 11 on, installers only accept 0 as the minor version; Python may be built for any,
    or say none.
    """
    platform = sysconfig.get_platform()
    platform = re.sub(r"^macosx-(1[1-9]|[2-9]\d)(\.\d+)?-", r"macosx-\1.0-", platform)
    return re.sub("[-.]", "_", platform)


def _why_not() -> str:
    if os.environ.get("AIOPROD_PURE"):
        return "AIOPROD_PURE is set"
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} has no stable ABI of CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "a free-threaded interpreter does not have the stable ABI of 3.11"
    return ""
