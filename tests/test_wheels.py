"""Each runtime dependency has a wheel for each platform and Python that aioprod supports, so that
``pip install aioprod`` needs no compiler. Asks the package index of pip: ``pytest -m wheels``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# The oldest systems for which wheels count: glibc 2.28 (RHEL 8, Debian 10), musl 1.2 (Alpine
# 3.13), macOS 12.
PLATFORMS = {
    "Linux x86-64": [f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)],
    "Linux ARM64": [f"manylinux_2_{minor}_aarch64" for minor in range(28, 16, -1)],
    "Alpine x86-64": ["musllinux_1_2_x86_64", "musllinux_1_1_x86_64"],
    "Alpine ARM64": ["musllinux_1_2_aarch64", "musllinux_1_1_aarch64"],
    "macOS Apple silicon": ["macosx_12_0_arm64"],
    "macOS Intel": ["macosx_12_0_x86_64"],
    "Windows x86-64": ["win_amd64"],
    "Windows ARM64": ["win_arm64"],
}
# Names before manylinux_2_17 and such, which older wheels have.
OLD_NAMES = {"Linux x86-64": ["manylinux2014_x86_64"], "Linux ARM64": ["manylinux2014_aarch64"]}
PYTHONS = {
    "3.11": ["cp311", "abi3"],
    "3.12": ["cp312", "abi3"],
    "3.13": ["cp313", "abi3"],
    "3.14": ["cp314", "abi3"],
    "3.14t": ["cp314t"],
}
LIMIT_S = 120


@pytest.mark.wheels
@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_dependencies_have_wheels(platform: str, python: str, tmp_path: Path) -> None:
    # pip evaluates markers for the Python that it runs on.
    version = {"python_version": python.removesuffix("t")}
    parsed = map(Requirement, PROJECT["dependencies"])
    wanted = [each for each in parsed if each.marker is None or each.marker.evaluate(version)]
    plain = [f"{each.name}{each.specifier}" for each in wanted]
    wheels = resolved(platform, python, plain, tmp_path)
    assert {"anyio", "crc32c", "cramjam"} <= wheels.keys()
    assert ("zstandard" in wheels) == (version["python_version"] < "3.14")
    assert all(name.endswith(".whl") for name in wheels.values())


@pytest.mark.wheels
@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_the_libraries_of_clouds_have_wheels(python: str, tmp_path: Path) -> None:
    extras = PROJECT["optional-dependencies"]
    requirements = [each for extra in ("aws", "azure", "google") for each in extras[extra]]
    wheels = resolved("Linux x86-64", python, requirements, tmp_path)
    assert {"botocore", "azure-identity", "google-auth"} <= wheels.keys()
    assert all(name.endswith(".whl") for name in wheels.values())


@pytest.mark.wheels
@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("platform", ["macOS Apple silicon", "Windows x86-64"])
def test_kerberos_has_wheels_if_it_is_not_compiled(
    platform: str, python: str, tmp_path: Path
) -> None:
    requirements = PROJECT["optional-dependencies"]["kerberos"]
    wheels = resolved(platform, python, requirements, tmp_path)
    assert "gssapi" in wheels and all(name.endswith(".whl") for name in wheels.values())


def resolved(
    platform: str, python: str, requirements: list[str], directory: Path
) -> dict[str, str]:
    """Let pip choose wheels, and return their file names; fail if a dependency has none."""
    tags = [*PLATFORMS[platform], *OLD_NAMES.get(platform, ())]
    report = directory / "report.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"),
            *("--only-binary=:all:", "--target", str(directory), "--report", str(report)),
            *(f"--platform={tag}" for tag in tags),
            *(f"--abi={abi}" for abi in PYTHONS[python]),
            *("--implementation=cp", f"--python-version={python.rstrip('t')}"),
            *requirements,
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        each["metadata"]["name"]: each["download_info"]["url"].rpartition("/")[2] for each in found
    }
