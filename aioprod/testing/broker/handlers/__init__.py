"""The APIs that the broker handles, one file each: a coroutine ``handle(request, context)`` for all
versions of its API. Importing this package imports all its modules, which registers them.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from aioprod.testing.broker.handlers.registry import HANDLERS as HANDLERS

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
