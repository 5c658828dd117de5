"""Writes a zip file with aioprod for Spark's executors:
``python -m aioprod.spark.packaging aioprod.zip``.

Without dependencies, the file is pure Python, for ``spark-submit --py-files``. aioprod's
dependencies, some of which are compiled, must then be installed for the executors' Python. With
``--with-dependencies``, the file is for executors with the same platform and Python version, and
must be unpacked: ``--archives aioprod.zip#packages --conf spark.executorEnv.PYTHONPATH=packages``.
In both cases the executors need pyarrow and PySpark's own requirements.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath

import aioprod

_COMPILED = (".so", ".pyd")  # can't be imported from a zip file
_REGISTRATION = "pyspark_aioprod"


def write_archive(path: Path | str, *, with_dependencies: bool = False) -> list[str]:
    """Write the zip file from the installed packages.

    Args:
        path: the file to write.
        with_dependencies: include the packages that aioprod depends on.

    Returns:
        The names of the included distributions, with their versions.

    Raises:
        PackageNotFoundError: if aioprod or a dependency is importable but not installed, so that
            its files are unknown.
    """
    taken = list(_dependencies()) if with_dependencies else []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (Path(aioprod.__file__).parent, _registration()):
            for file in _files_of(package, compiled=with_dependencies):
                archive.write(file, file.relative_to(package.parent))
        for each in taken:
            for path_inside in each.files or ():
                if ".." not in path_inside.parts and _wanted(path_inside):
                    archive.write(str(each.locate_file(path_inside)), str(path_inside))
    return [f"{each.name} {each.version}" for each in taken]


def _registration() -> Path:
    """Return the package that registers the format ``aioprod`` with Spark. It is next to aioprod if
    that is installed, and inside aioprod in a checkout.
    """
    spec = importlib.util.find_spec(_REGISTRATION)
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent
    return Path(aioprod.__file__).parent / "spark" / "registration" / _REGISTRATION


def _files_of(package: Path, *, compiled: bool) -> Iterator[Path]:
    for file in sorted(package.rglob("*")):
        if file.is_file() and _wanted(file) and (compiled or file.suffix not in _COMPILED):
            yield file


def _wanted(file: PurePath) -> bool:
    return "__pycache__" not in file.parts


def _dependencies() -> Iterator[Distribution]:
    """Yield the packages that aioprod requires without its extras, directly and indirectly."""
    seen = {"aioprod"}
    waiting = [distribution("aioprod")]
    while waiting:
        for requirement in waiting.pop().requires or ():
            name, marker = re.match(r"[\w.-]+", requirement), requirement.partition(";")[2]
            if name is None or "extra" in marker or name[0].lower() in seen:
                continue
            seen.add(name[0].lower())
            try:
                found = distribution(name[0])
            except PackageNotFoundError:
                if marker:  # for another Python or platform
                    continue
                raise
            waiting.append(found)
            yield found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="aioprod.spark.packaging",
        description="Packs aioprod for Spark's executors.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, help="the zip file to write")
    parser.add_argument(
        "--with-dependencies",
        action="store_true",
        help="include aioprod's dependencies, for --archives instead of --py-files",
    )
    given = parser.parse_args(arguments)
    try:
        taken = write_archive(given.file, with_dependencies=given.with_dependencies)
    except (PackageNotFoundError, OSError) as error:
        print(f"aioprod.spark.packaging: {error}", file=sys.stderr)
        return 1
    print(f"{given.file}: {', '.join(['aioprod', *taken])}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
