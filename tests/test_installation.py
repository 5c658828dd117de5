"""An installation from source has the accelerator if it can be compiled; else it is pure Python and
says why.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow  # it compiles
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("AIOPROD_")}
CAN_COMPILE = (
    shutil.which(os.environ.get("CC", "cc")) is not None
    and Path(sysconfig.get_paths()["include"], "Python.h").is_file()
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
)


def build(
    target: str, source: Path, into: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run what pip runs; it shows the output with ``-v``."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)],
        cwd=source,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    directory = tmp_path_factory.mktemp("source")
    built = build("sdist", ROOT, directory)
    assert built.returncode == 0, built.stderr
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            packed.extraction_filter = tarfile.data_filter
        packed.extractall(directory)
    (unpacked,) = (path for path in directory.iterdir() if path.is_dir())
    return unpacked


def try_wheel(wheel: Path, *arguments: str) -> None:
    """Send and read a record with the wheel alone."""
    installed = wheel.with_suffix("")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(installed)
    reported = subprocess.run(
        [sys.executable, str(ROOT / ".github/workflows/try_wheel.py"), *arguments],
        cwd=wheel.parent,
        env={**ENVIRONMENT, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert reported.returncode == 0, reported.stderr
    assert Path(reported.stdout.strip()).is_relative_to(installed)


def test_the_source_distribution_has_the_sources_and_no_library(source: Path) -> None:
    (archive,) = source.parent.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "aioprod/_c").glob("*.[ch]")}
    assert sources and sources | {"hatch_build.py", "aioprod/_native.pyi"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyd"))]


@pytest.mark.skipif(not CAN_COMPILE, reason="no C compiler, or no headers of Python")
def test_with_a_compiler_the_wheel_has_the_accelerator(source: Path, tmp_path: Path) -> None:
    built = build("wheel", source, tmp_path, CFLAGS="-O0")  # that is compiled in less time
    assert "aioprod is installed with its accelerator: _native.abi3.so" in built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert f"-cp3{sys.version_info.minor}-abi3-" in wheel.name
    try_wheel(wheel)


@pytest.mark.skipif(not CAN_COMPILE, reason="no C compiler, or no headers of Python")
@pytest.mark.skipif(sys.platform == "win32", reason="the command line of GCC")
def test_what_a_newer_python_has_built_is_not_used(source: Path, tmp_path: Path) -> None:
    """With any limited API, the headers of 3.12 and newer do not count references to None: 3.11
    would free it at some time.
    """
    headers = tmp_path / "include"
    shutil.copytree(sysconfig.get_paths()["include"], headers)
    version = headers / "patchlevel.h"
    text = version.read_text()
    newer = re.sub(r"(PY_VERSION_HEX\s+)0x\w+", r"\g<1>0x03FF00F0", text)
    version.write_text(re.sub(r"(PY_MINOR_VERSION\s+)\d+", r"\g<1>255", newer))
    library = source / "aioprod/_native.abi3.so"
    compiler = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O0", f"-I{headers}"]
    sources = sorted(map(str, (source / "aioprod/_c").glob("*.c")))
    subprocess.run([*compiler, *sources, "-o", str(library)], check=True, timeout=100)
    code = "from aioprod import native; print(native.in_use, native.reason_not_in_use)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source), "AIOPROD_PURE": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "False" in done.stdout and "built with Python 3.255" in done.stdout


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"CC": "/nonexistent/cc"}, "it does not compile"),
        pytest.param(
            {"CFLAGS": "-nostdinc"},  # as if Python.h were not there
            "it does not compile",
            marks=pytest.mark.wheels,
        ),
        pytest.param({"AIOPROD_PURE": "1"}, "AIOPROD_PURE is set", marks=pytest.mark.wheels),
    ],
    ids=["no compiler", "no headers", "turned off"],
)
def test_without_it_the_wheel_is_pure_python(
    environment: dict[str, str], reason: str, source: Path, tmp_path: Path
) -> None:
    """Even if an earlier build has left its library."""
    (source / "aioprod/_native.abi3.so").touch()
    built = build("wheel", source, tmp_path, **environment)
    assert f"aioprod is installed as pure Python, which is slower: {reason}" in built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if "_native.abi3" in name]
        assert packed.read("aioprod/_not_built.txt").decode().startswith(reason)
    try_wheel(wheel, "pure")
    code = "from aioprod import native; print(native.reason_not_in_use)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONPATH": str(wheel.with_suffix(""))},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout.startswith(f"it was not built: {reason}")


@pytest.mark.skipif(sys.platform == "win32", reason="no /dev/tty")
def test_a_terminal_shows_why_though_pip_shows_no_output_of_builds() -> None:
    captured = "import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 2)"
    child = f"{captured}; import hatch_build; hatch_build._show_past_pip('it is slower: no cc')"
    in_terminal = f"import pty, sys; pty.spawn([sys.executable, '-c', {child!r}])"
    done = subprocess.run(
        [sys.executable, "-c", in_terminal],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split("\n").count("it is slower: no cc") == 1


def test_it_can_be_required(source: Path, tmp_path: Path) -> None:
    built = build("wheel", source, tmp_path, CC="/nonexistent/cc", AIOPROD_NATIVE="required")
    assert built.returncode != 0
    assert "aioprod._native is required, but it does not compile" in built.stderr
    assert not list(tmp_path.iterdir())
