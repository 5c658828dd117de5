"""Builds the accelerator ``aioprod._native``, if there is a C compiler; else the wheel is pure
Python. And makes the page of the package index of README.md.

``AIOPROD_PURE=1`` leaves the accelerator out, ``AIOPROD_NATIVE=required`` fails if it can't be
built.
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
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCES = "aioprod/_c"
#: Of the package: why it has no accelerator. aioprod/native.py reads it.
_REASON = "_not_built.txt"
_SLOWER = "aioprod is installed as pure Python, which is slower"
FLAGS = ["-O3", "-g0", "-Wall", "-Wextra", "-fvisibility=hidden"]


_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)]+)\)")


class IndexPage(MetadataHookInterface):
    """Makes the links of README.md absolute: the package index shows it without the repository.

    Until the project has a public address, which ``[project.urls]`` names as ``Source``, they
    become text.
    """

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        source = metadata.get("urls", {}).get("Source")
        files = f"{source}/blob/v{metadata['version']}" if source else None
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": _LINK.sub(lambda link: _absolute(link, files), text),
        }


def _absolute(link: re.Match[str], files: str | None) -> str:
    return f"[{link[1]}]({files}/{link[2]})" if files else link[1]


class NativeBuildHook(BuildHookInterface[Any]):
    """Compiles for CPython's stable ABI: one library serves the Python that builds it and all later
    versions.
    """

    PLUGIN_NAME = "custom"

    _reason: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        reason = _why_not()
        if not reason:
            try:
                library = self._compile()
            except Exception as error:  # no compiler, no headers, or no room: all are one to us
                reason = f"it does not compile: {' '.join(str(error).split())}"
        if reason:
            if os.environ.get("AIOPROD_NATIVE") == "required":
                raise RuntimeError(f"aioprod._native is required, but {reason}")
            self.app.display_warning(f"{_SLOWER}: {reason}")
            _show_past_pip(f"{_SLOWER}: {reason}")
            if version != "editable":
                self._reason = tempfile.TemporaryDirectory()
                path = Path(self._reason.name, "reason.txt")
                path.write_text(reason, encoding="utf-8")
                build_data["force_include"][str(path)] = f"aioprod/{_REASON}"
            return
        self.app.display_info(f"aioprod is installed with its accelerator: {library.name}")
        build_data["pure_python"] = False
        # Not cp311: built with the headers of 3.12 or newer, it would crash 3.11.
        version_tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["tag"] = f"{version_tag}-abi3-{_platform_tag()}"
        if version != "editable":
            build_data["force_include"][str(library)] = f"aioprod/{library.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._reason is not None:
            self._reason.cleanup()

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


def _show_past_pip(line: str) -> None:
    """Write to the terminal, if there is one: pip shows what a build says only with ``-v``."""
    if sys.platform == "win32" or sys.stderr.isatty():
        return
    try:
        with open("/dev/tty", "w", encoding="utf-8") as terminal:
            terminal.write(f"\r\n{line}\r\n")
    except OSError:
        pass


def _why_not() -> str:
    if os.environ.get("AIOPROD_PURE"):
        return "AIOPROD_PURE is set"
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} has no stable ABI of CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "a free-threaded interpreter does not have the stable ABI of 3.11"
    return ""
