"""A process of its own for one client on one kind of event loop: reads one question a line, answers
in one line.

A question is ``{"measure": NAME, "settings": {...}, "arguments": {...}}``, an answer ``{"figures":
{...}}`` or ``{"error": TEXT}``. Between questions no client is open, so that nothing disturbs the
others. ``workers.py`` is the other end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from benchmarks.adapters import ADAPTERS, Settings
from benchmarks.measures import Figures, measure


def main() -> None:
    """Answer until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=ADAPTERS)
    parser.add_argument("--uvloop", action="store_true")
    chosen = parser.parse_args()
    # What a client prints must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            print(
                json.dumps(_answer(chosen.client, chosen.uvloop, json.loads(line))),
                file=answers,
                flush=True,
            )


def _answer(client: str, uvloop: bool, question: dict[str, Any]) -> Figures:
    try:
        asked = measure(question["measure"])
        with asyncio.Runner(loop_factory=_uvloop() if uvloop else None) as runner:
            adapter, settings = ADAPTERS[client](), Settings(**question["settings"])
            return {"figures": runner.run(asked(adapter, settings, question["arguments"]))}
    except Exception:
        return {"error": traceback.format_exc()}


def _uvloop() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
