"""Public names can be imported from their packages, and ``import aioprod`` imports none of them."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re
import subprocess
import sys
import uuid
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import get_type_hints, is_typeddict

import pytest

import aioprod
from aioprod._tools import generate_exports
from aioprod.misuse import Instead
from tests.public_names import PUBLIC_NAMES

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "aioprod.producer",
    "aioprod.consumer",
    "aioprod.admin",
    "aioprod.config",
    "aioprod.outbox",
    "aioprod.processing",
    "aioprod.processing.dead_letters",
    "aioprod.processing.inbox",
    "aioprod.schema_registry",
)
INTERNAL = {"ApiKey"}  # of aioprod.protocol


def printed(code: str) -> str:
    """Run code in a new Python process, and return its output."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_of_a_package_is_there_and_described(package: str) -> None:
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_both_have_is_the_same_object(package: str) -> None:
    module = import_module(package)
    shared = set(module.__all__) & set(PUBLIC_NAMES)
    assert [name for name in shared if getattr(module, name) is not getattr(aioprod, name)] == []


def public_classes() -> dict[str, type]:
    names = {(aioprod, name) for name in PUBLIC_NAMES}
    for package in (*PACKAGES, "aioprod.metrics", "aioprod.testing"):
        module = import_module(package)
        names |= {(module, name) for name in module.__all__}
    found = {f"{module.__name__}.{name}": getattr(module, name) for module, name in names}
    return {name: value for name, value in found.items() if inspect.isclass(value)}


@pytest.mark.parametrize("name", sorted(public_classes()))
def test_a_public_class_shows_the_package_to_import_it_from(name: str) -> None:
    kind = public_classes()[name]
    assert kind.__doc__
    if is_typeddict(kind) or kind.__name__ in INTERNAL:
        return
    assert re.fullmatch(r"aioprod\.\w+", kind.__module__) or kind.__module__ in PACKAGES
    assert getattr(import_module(kind.__module__), kind.__name__) is kind
    assert pickle.loads(pickle.dumps(kind)) is kind
    get_type_hints(kind)  # resolves


@pytest.mark.parametrize("name", sorted(public_classes()))
def test_each_public_method_is_described(name: str) -> None:
    """ruff asks for docstrings of all methods or none: those of private classes need none."""
    kind = public_classes()[name]
    methods = {
        name: getattr(kind, name)
        for owner in kind.__mro__
        if owner.__module__.startswith("aioprod")
        for name, member in vars(owner).items()
        if not name.startswith("_") and not isinstance(member, Instead)
    }
    called = {name: each for name, each in methods.items() if callable(each)}
    assert [name for name, each in called.items() if not inspect.getdoc(each)] == []


def test_dir_shows_what_users_need() -> None:
    shown = {name for name in dir(aioprod) if not name.startswith("_")}
    errors = set(aioprod.errors.__all__)
    assert shown == (set(PUBLIC_NAMES) - errors) | {"errors"}
    assert {"Producer", "Consumer", "Admin", "ProducerConfig", "TopicPartition"} <= shown
    assert errors <= set(PUBLIC_NAMES)
    assert [name for name in errors if getattr(aioprod, name).__module__ != "aioprod.errors"] == []


def test_each_error_is_listed() -> None:
    defined = {
        name
        for name, value in vars(aioprod.errors).items()
        if inspect.isclass(value) and value.__module__ == "aioprod.errors"
    }
    assert defined == set(aioprod.errors.__all__)
    assert sorted(defined) == aioprod.errors.__all__


PARTITION = aioprod.TopicPartition("orders", 0)


@pytest.mark.parametrize(
    "error",
    [
        aioprod.ConfigError("x"),
        aioprod.RequestTimedOutError("x"),
        aioprod.BrokerError(aioprod.ErrorCode.NOT_LEADER_OR_FOLLOWER, "x"),
        aioprod.ProducerFencedError(aioprod.ErrorCode.PRODUCER_FENCED),
        aioprod.NoOffsetError("x", PARTITION),
        aioprod.OffsetOutOfRangeError("x", PARTITION, 5),
        aioprod.LogTruncationError("x", PARTITION, 5, 3),
        aioprod.TopicRecreatedError("x", PARTITION, 5, uuid.UUID(int=1), uuid.UUID(int=2)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_reaches_another_process(error: aioprod.KafkaError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error) and twin is not error
        assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))


def test_type_checkers_see_the_names_that_are_there() -> None:
    tree = ast.parse(Path(aioprod.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen: set[str] = set()
    for node in block.body:
        assert isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names:
            assert alias.name == "*" or alias.asname == alias.name, "an alias makes it public"
            seen.update(import_module(node.module).__all__ if alias.name == "*" else [alias.name])
    assert seen - {"__version__"} == set(PUBLIC_NAMES)


def test_a_name_that_is_not_public_is_not_there() -> None:
    for name in ("Shopper", "_private", "FetchSettings"):
        with pytest.raises(AttributeError, match=f"module 'aioprod' has no attribute '{name}'"):
            getattr(aioprod, name)


def test_a_star_import_has_all_names() -> None:
    namespace: dict[str, object] = {}
    exec("from aioprod import *", namespace)
    assert set(PUBLIC_NAMES) <= namespace.keys()


@pytest.mark.parametrize("package", PACKAGES[:3])
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


def test_the_version_is_that_of_the_installed_package() -> None:
    assert aioprod.__version__ == version("aioprod")
    assert "__version__" in dir(aioprod)


def test_the_generated_names_of_packages_are_up_to_date(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert generate_exports.main(["--check"]) == 0, capsys.readouterr().out


def test_a_new_name_is_one_edit() -> None:
    source = (ROOT / "aioprod/producer/__init__.py").read_text()
    added = source.replace(
        "    from aioprod.producer.producer import Producer\n",
        "    from aioprod.producer.producer import Producer, Walker\n",
    )
    text = generate_exports.updated(added)
    assert '    "Walker",\n' in text and '    "Walker": "aioprod.producer.producer",\n' in text
