"""The public names of aioprod, which are listed when they are asked for."""

from __future__ import annotations

from importlib import import_module

PUBLIC_NAMES: list[str] = import_module("aioprod").__all__
