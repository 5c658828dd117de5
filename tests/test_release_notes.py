"""The notes of a version are short, and each note of the next one has a type."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import aioprod

ROOT = Path(__file__).parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TWO_MINUTES = 500  # words
_SPEC = importlib.util.spec_from_file_location("release_notes", ROOT / ".ci" / "release_notes.py")
assert _SPEC is not None and _SPEC.loader is not None
release_notes = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(release_notes)


def test_the_notes_of_this_version_are_read_in_two_minutes() -> None:
    version = aioprod.__version__
    dated = re.sub(r"- unreleased$", "- 2027-01-01", CHANGELOG, flags=re.MULTILINE)
    notes = release_notes.notes_of(version, dated)
    assert 100 < len(notes.split()) <= TWO_MINUTES
    headings = re.findall(r"^### (.*)$", notes, re.MULTILINE)
    assert headings[0] in ("Highlights", "Breaking") and "Limits" in headings


def test_a_version_without_a_date_or_notes_is_not_released() -> None:
    with pytest.raises(ValueError, match="no date in"):
        release_notes.notes_of("0.1.0", "## [0.1.0] - unreleased\n")
    with pytest.raises(ValueError, match=r"no notes of version 0\.2\.0"):
        release_notes.notes_of("0.2.0", "## [0.1.0] - 2027-01-01\n")
    two = "## [0.2.0] - 2027-02-01\nnew\n## [0.1.0] - 2027-01-01\nold\n"
    assert release_notes.notes_of("0.2.0", two) == "new"


def test_the_notes_are_checked_before_anything_is_published() -> None:
    """A version on PyPI can't be replaced."""
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs = re.split(r"^  (\w+):\n", workflow.partition("\njobs:\n")[2], flags=re.MULTILINE)[1:]
    texts = dict(zip(jobs[::2], jobs[1::2], strict=True))
    assert ".ci/release_notes.py" in texts["source"]
    assert re.search(r"needs: \[.*\bsource\b.*\]", texts["publish"])


def test_each_fragment_has_a_type_and_is_short() -> None:
    types = {each["directory"] for each in PROJECT["tool"]["towncrier"]["type"]}
    names = re.compile(rf"(\d+|\+[\w-]+)\.({'|'.join(sorted(types))})(\.\d)?\.md")
    for path in (ROOT / "newsfragments").iterdir():
        if path.name != "README.md":
            assert names.fullmatch(path.name), path.name
            assert len(path.read_text(encoding="utf-8").split()) <= 80, path.name


def test_the_next_version_has_fragments_only() -> None:
    """A branch that is older than the fragments adds lines to the changelog when it is merged."""
    _, following = CHANGELOG.split(PROJECT["tool"]["towncrier"]["start_string"])
    assert following.lstrip().startswith("## [")
