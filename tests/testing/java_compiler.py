"""Compiles Java by Eclipse's compiler, which is one jar and needs no JDK, only a runtime."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from aioprod.testing.cache import SetupError
from aioprod.testing.jars import fetch, locked_jars, ways
from aioprod.testing.java import MIN_JAVA, find_java

_TIMEOUT_S = 60


def java_compiler() -> Path:
    """Return the compiler's jar, of which later versions need a later Java than 17. The first call
    fetches 3 MB.

    Raises:
        SetupError: if it can't be fetched.
    """
    (compiler,) = fetch("java-compiler", locked_jars("java-compiler"), ways())
    return compiler


def compile_to_jar(source: Path, class_path: Sequence[Path], directory: Path) -> Path:
    """Compile one file, and return a jar of its classes.

    Raises:
        SetupError: if there is no Java or compiler, or the source has errors.
    """
    classes = directory / "classes"
    compiler = java_compiler()
    done = subprocess.run(
        [
            str(find_java()),
            "-jar",
            str(compiler),
            "-source",
            str(MIN_JAVA),
            "-target",
            str(MIN_JAVA),
            "-nowarn",
            "-cp",
            ":".join(map(str, class_path)),
            "-d",
            str(classes),
            str(source),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise SetupError(f"{source.name} can't be compiled:\n{done.stdout[-2000:]}")
    jar = directory / f"{source.stem}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, path.relative_to(classes))
    return jar
