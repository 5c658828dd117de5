"""Lists what a reader of the package may stumble over: modules that only one module imports, and
constructors with many parameters.

    python -m tests.rooms            # all of aioprod
    python -m tests.rooms consumer   # one package

A module with one importer is right if a reader looks for it by its name, such as one handler per
API. Otherwise it belongs to its importer.
"""

from __future__ import annotations

import sys
from collections import defaultdict

from tests.test_architecture import FILES, MAX_PARAMETERS, constructors, imported_modules


def single_importers() -> dict[str, str]:
    """Return the modules that one module imports, each with that one. Packages do not count."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name in FILES:
        for target in imported_modules(name):
            importers[target].add(name)
    return {
        name: importer
        for name, (importer, *others) in sorted(importers.items())
        if not others and FILES[name].name != "__init__.py" and ".messages." not in name
    }


def main() -> None:
    """Print both lists."""
    package = f"aioprod.{sys.argv[1]}." if len(sys.argv) > 1 else "aioprod."
    single = {
        name: importer for name, importer in single_importers().items() if name.startswith(package)
    }
    for name, importer in single.items():
        lines = len(FILES[name].read_text().splitlines())
        print(f"{name.removeprefix('aioprod.')} ({lines} lines) <- {importer}")
    print(f"{len(single)} modules with one importer")
    for name, kind, count in constructors():
        if count > MAX_PARAMETERS and name.startswith(package):
            print(f"{name.removeprefix('aioprod.')}.{kind}: {count} parameters")


if __name__ == "__main__":
    main()
