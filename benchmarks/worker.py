"""A process that measures one client: reads a request from each line, and writes a response.

A request is ``{"measure": NAME, "settings": {...}, "arguments": {...}}``, a response ``{"numbers":
{...}}`` or ``{"error": TEXT}``. Clients are closed after each request. ``workers.py`` is the other
end.
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
from benchmarks.measures import Numbers, measure


def main() -> None:
    """Handle requests until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=ADAPTERS)
    parser.add_argument("--uvloop", action="store_true")
    chosen = parser.parse_args()
    # Clients may print to standard output: separate that from the responses.
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            print(
                json.dumps(_handle(chosen.client, chosen.uvloop, json.loads(line))),
                file=responses,
                flush=True,
            )


def _handle(client: str, uvloop: bool, request: dict[str, Any]) -> Numbers:
    try:
        asked = measure(request["measure"])
        with asyncio.Runner(loop_factory=_uvloop() if uvloop else None) as runner:
            adapter, settings = ADAPTERS[client](), Settings(**request["settings"])
            return {"numbers": runner.run(asked(adapter, settings, request["arguments"]))}
    except Exception:
        return {"error": traceback.format_exc()}


def _uvloop() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
