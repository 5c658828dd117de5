"""The crash runs find tracebacks and other reports of errors in logs."""

from __future__ import annotations

from pathlib import Path

import aioprod

from .crash_tracebacks import in_text

_SPARKS = """26/11/23 16:08:38 WARN Something
Traceback (most recent call last):
  File "{package}/spark/sending.py", line 60, in _portion
    for batch in batches:
  File "/site-packages/pyspark/serializers.py", line 597, in read_int
    raise EOFError
EOFError
"""
_OURS = """Traceback (most recent call last):
  File "/site-packages/pyspark/worker.py", line 1, in main
    process()
  File "{package}/spark/sending.py", line 60, in _portion
    raise KeyError(1)
KeyError: 1
"""
_LEFT_BEHIND = "Task exception was never retrieved\nfuture: <Task finished name='Task-1'>\n"


def test_a_traceback_belongs_to_the_code_that_raised() -> None:
    package = Path(aioprod.__file__).parent
    found = in_text("".join((_SPARKS, _OURS, _LEFT_BEHIND)).format(package=package))
    assert [(each.kind, each.error, each.ours) for each in found] == [
        ("raised in serializers.py", "EOFError", False),
        ("raised in sending.py", "KeyError: 1", True),
        ("never retrieved", "Task exception was never retrieved", True),
    ]
    assert "WARN Something" in found[0].text
    assert [each.left_behind for each in found] == [False, False, True]


def test_a_log_without_any() -> None:
    assert in_text("26/11/23 16:08:38 INFO Executor: Running task 0.0\n") == []
