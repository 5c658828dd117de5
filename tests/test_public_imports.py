"""Public names can be imported from their packages, and ``import aioprod`` imports none of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import aioprod
from tests.public_names import PUBLIC_NAMES

ROOT = Path(__file__).parent.parent
PACKAGES = ("aioprod.producer", "aioprod.consumer", "aioprod.admin")


def printed(code: str) -> str:
    """What a new Python process prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_of_a_package_is_there_and_described(package: str) -> None:
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES[:2])
def test_what_both_have_is_the_same_object(package: str) -> None:
    module = import_module(package)
    shared = set(module.__all__) & set(PUBLIC_NAMES)
    assert {"aioprod.producer": "Producer", "aioprod.consumer": "Consumer"}[package] in shared
    assert [name for name in shared if getattr(module, name) is not getattr(aioprod, name)] == []
    homes = {name: getattr(getattr(aioprod, name), "__module__", "") for name in PUBLIC_NAMES}
    public_here = {name for name, home in homes.items() if home.startswith(package + ".")}
    assert public_here <= shared, f"give {package} what aioprod has from it"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_first_import_of_a_process_has_no_circle(package: str) -> None:
    name = package.rpartition(".")[2].capitalize()
    assert printed(f"from {package} import {name}; print({name}.__name__)") == f"{name}\n"


@pytest.mark.parametrize(
    ("statement", "modules"),
    [
        ("import aioprod", ["aioprod", "aioprod.lazy_names"]),
        ("import aioprod.producer", ["aioprod", "aioprod.lazy_names", "aioprod.producer"]),
        ("import aioprod.consumer", ["aioprod", "aioprod.consumer", "aioprod.lazy_names"]),
    ],
)
def test_an_import_of_a_package_imports_nothing_else(statement: str, modules: list[str]) -> None:
    show = "import sys; print(*sorted(name for name in sys.modules if name.startswith('aioprod')))"
    version = "print('importlib.metadata' in sys.modules)"
    without = printed(f"import sys; {version}").strip()
    assert printed(f"{statement}; {show}; {version}").split() == [*modules, without]


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert aioprod.__version__ == project["version"]
    assert "__version__" in dir(aioprod)


def test_modules_without_the_packages_metadata_have_a_version() -> None:
    code = (
        "from importlib import metadata\n"
        "def missing(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = missing\n"
        "import aioprod; print(aioprod.__version__)"
    )
    assert printed(code) == "0+unknown\n"
