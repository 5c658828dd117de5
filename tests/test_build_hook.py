"""The build hook always compiles, and gives a wheel a platform that installers accept."""

from __future__ import annotations

import importlib.util
import re
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from packaging.tags import mac_platforms


def hook_module() -> Any:
    path = Path(__file__).parents[1] / "hatch_build.py"
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_library_from_an_earlier_build_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hook_module()
    sources = tmp_path / module.SOURCES
    sources.mkdir(parents=True)
    (sources / "module.c").touch()
    sources.with_name("_native.abi3.so").write_bytes(b"for another architecture")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC", "false")
    hook = module.NativeBuildHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    with pytest.raises(Exception, match="false"):
        hook._compile()


@pytest.mark.parametrize(
    ("platform", "tag"),
    [
        ("macosx-10.13-universal2", "macosx_10_13_universal2"),
        ("macosx-11.0-arm64", "macosx_11_0_arm64"),
        ("macosx-14.2-arm64", "macosx_14_0_arm64"),
        ("macosx-11-arm64", "macosx_11_0_arm64"),
        ("linux-x86_64", "linux_x86_64"),
        ("win-amd64", "win_amd64"),
    ],
)
def test_platform_tag(platform: str, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_platform", lambda: platform)
    assert hook_module()._platform_tag() == tag
    if platform.startswith("macosx"):
        assert tag in mac_platforms((15, 0), "arm64")


def test_a_free_threaded_interpreter_gets_pure_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOPROD_PURE", raising=False)
    assert hook_module()._why_not() == ""
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    assert "free-threaded" in hook_module()._why_not()


@pytest.mark.parametrize("source", ["https://example.org/aioprod", None])
def test_the_page_of_the_index_has_no_relative_links(source: str | None) -> None:
    root = Path(__file__).parents[1]
    metadata: dict[str, Any] = {"version": "1.2.3"}
    if source:
        metadata["urls"] = {"Source": source}
    hook_module().IndexPage(str(root), {}).update(metadata)
    text = metadata["readme"]["text"]
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets and all(target.startswith("https://") for target in targets)
    expected = "measurements](https://example.org/aioprod/blob/v1.2.3/docs/performance.md)"
    assert (expected in text) == bool(source)
    assert "measurements" in text
    assert metadata["readme"]["content-type"] == "text/markdown"
