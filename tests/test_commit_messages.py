"""The check of commit messages, which CI and pre-commit run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / ".ci" / "commit_message.py"
_SPEC = importlib.util.spec_from_file_location("commit_message", SCRIPT)
assert _SPEC is not None and _SPEC.loader is not None
commit_message = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(commit_message)


@pytest.mark.parametrize(
    "message",
    [
        "Add a codec\n\nBrokers have a fifth one.\n",
        "Tests: wait for a state\n\nA busy machine needed longer.",
        "Add a codec\n\nBecause.\n# Please enter the commit message\n# On branch main\n",
        "x" * 72 + "\n\nwhy",
        "Merge branch 'other'",
        'Revert "Add a codec"',
        "See a page\n\nhttps://example.com/" + "x" * 200,
    ],
)
def test_messages_that_say_why(message: str) -> None:
    assert commit_message.faults(message) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("Add a codec", "no body"),
        ("Add a codec\n\n\n", "no body"),
        ("Add a codec\n# a comment\n", "no body"),
        ("Add a codec\nbecause", "second line"),
        ("x" * 73 + "\n\nwhy", "73 characters"),
        ("Add a codec.\n\nwhy", "period"),
        ("Added a codec\n\nwhy", "imperative"),
        ("Docs: fixes a link\n\nwhy", "imperative"),
        ("Add a codec\n\n" + "a long line of words " * 6, "characters"),
        ("Merge " + "x" * 80, "86 characters"),
    ],
)
def test_other_messages(message: str, fault: str) -> None:
    found = commit_message.faults(message)
    assert found and fault in " ".join(found)


def test_the_hook_and_a_range(tmp_path: Path) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    identity = ["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    assert run("git", "init", "-q").returncode == 0
    for message in (
        "Begin\n\nA start.",
        "Add a file\n\nIt is needed.",
        "Added another",
        "fixup! x\n\ny",
    ):
        done = run("git", *identity, "commit", "-q", "--allow-empty", "-m", message)
        assert done.returncode == 0, done.stderr
    good = run(sys.executable, str(SCRIPT), "--range", "HEAD~3..HEAD~2")
    assert (good.returncode, good.stderr) == (0, "")
    bad = run(sys.executable, str(SCRIPT), "--range", "HEAD~3..HEAD")
    assert bad.returncode == 1
    assert "imperative" in bad.stderr and "no body" in bad.stderr and "not final" in bad.stderr
    file = tmp_path / "MESSAGE"
    file.write_text("Add a file\n\nIt is needed.\n")
    assert run(sys.executable, str(SCRIPT), str(file)).returncode == 0
    file.write_text("Add a file\n")
    assert run(sys.executable, str(SCRIPT), str(file)).returncode == 1
