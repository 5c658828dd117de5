"""Summarizes why Spark failed in one line."""

from __future__ import annotations

_PYTHON_STACK = "Traceback (most recent call last):"


def failure_reason(text: str) -> str:
    """Return the most informative line of a stack trace: the error at the end of a Python one,
    else Java's last cause, else the first line that is not py4j's.
    """
    if _PYTHON_STACK in text:
        # The frames are indented; the first line that is not is the error.
        error = next(
            (
                line
                for line in text.split(_PYTHON_STACK, 1)[1].splitlines()
                if line and not line[0].isspace()
            ),
            "",
        )
        if error:
            return error
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = [
        line.removeprefix(": ")
        for line in lines
        if line and not line.startswith("An error occurred while calling")
    ]
    return (causes[-1:] or first[:1] or [""])[0]
