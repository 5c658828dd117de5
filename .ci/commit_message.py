#!/usr/bin/env python3
"""Checks messages of commits: a short subject in the imperative, and a body that says why.

``commit_message.py FILE`` checks the message of a commit that is being made (the hook commit-msg);
``commit_message.py --range main..HEAD`` those of a branch. Exits with 1 if one has a fault.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

MAX_SUBJECT = 72
MAX_LINE = 100
_VERBS = "Add|Chang|Fix|Remov|Updat|Us|Mak|Mov|Renam|Writ|Test"
_NOT_IMPERATIVE = re.compile(
    rf"(?:[A-Z][\w. ]*: )?(?:{_VERBS})(?:ed|es|s|ing)\b(?!:)", re.IGNORECASE
)
_WITHOUT_BODY = re.compile(r"(?:Merge |Revert \")")
_NOT_FINAL = re.compile(r"(?:fixup|squash|amend)! |WIP\b", re.IGNORECASE)


def faults(message: str) -> list[str]:
    """Return what is wrong with a message."""
    # Git removes comments and, with --verbose, the change below the scissors.
    message = message.split("# ------------------------ >8")[0]
    lines = [line.rstrip() for line in message.splitlines() if not line.startswith("#")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        return ["it is empty"]
    subject, *rest = lines
    found = []
    if len(subject) > MAX_SUBJECT:
        found.append(f"its subject has {len(subject)} characters: at most {MAX_SUBJECT}")
    if subject.endswith("."):
        found.append("its subject ends with a period")
    if _NOT_IMPERATIVE.match(subject):
        found.append('its subject is not in the imperative, such as "Add a codec"')
    if _WITHOUT_BODY.match(subject):
        return found
    if not rest:
        found.append("it has no body that says why")
    elif rest[0]:
        found.append("its second line is not empty")
    elif not any(rest[1:]):
        found.append("it has no body that says why")
    long = [line for line in rest if len(line) > MAX_LINE and " " in line.strip()]
    if long:
        found.append(f"its body has a line of {len(long[0])} characters: at most {MAX_LINE}")
    return found


def messages(commits: str) -> Iterator[tuple[str, str]]:
    """Yield the short name and the message of each commit of a range."""
    command = ["git", "log", "--no-merges", "--format=%h%x00%B%x01", commits]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for entry in text.split("\x01"):
        if entry.strip():
            name, _, message = entry.strip("\n").partition("\0")
            yield name, message


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("file", nargs="?", type=Path, help="the file with a message")
    chosen.add_argument("--range", help="the commits to check, such as main..HEAD")
    options = parser.parse_args(arguments)
    status = 0
    if options.range is None:
        checked = [("this commit", options.file.read_text(encoding="utf-8"))]
    else:
        checked = list(messages(options.range))
    for name, message in checked:
        found = faults(message)
        if options.range is not None and _NOT_FINAL.match(message):
            found.append("it is not final")
        for fault in found:
            status = 1
            print(f"{name}: {fault}", file=sys.stderr)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
