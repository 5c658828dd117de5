"""An embedded broker in a separate process, so that its CPU time is not counted as the client's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aioprod.testing import EmbeddedCluster
from benchmarks.harness import loop_factory

_REPOSITORY = Path(__file__).parents[1]
_STOP_TIMEOUT_S = 10


@contextmanager
def broker_process(topics: Mapping[str, int], *, nodes: int = 1) -> Iterator[str]:
    """Run a broker and yield its bootstrap servers.

    Args:
        topics: the number of partitions of each topic.
        nodes: the number of brokers, which share the process.
    """
    with broker_with_pid(topics, nodes=nodes) as (address, _):
        yield address


@contextmanager
def broker_with_pid(topics: Mapping[str, int], *, nodes: int = 1) -> Iterator[tuple[str, int]]:
    """Run a broker and yield its bootstrap servers and process id."""
    command = [sys.executable, "-m", "benchmarks.broker", str(nodes)]
    with subprocess.Popen(
        command, cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(dict(topics)) + "\n")
            process.stdin.flush()
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError(
                    f"the broker process ended with exit status {process.wait(_STOP_TIMEOUT_S)}"
                )
            yield address, process.pid
        finally:
            process.stdin.close()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


async def _serve(topics: Mapping[str, int], nodes: int) -> None:
    async with EmbeddedCluster(nodes=nodes, max_memory_bytes=16 << 30) as broker:
        for name, partitions in topics.items():
            broker.create_topic(name, partitions)
        print(broker.bootstrap_servers, flush=True)
        # The benchmark has the other end of this pipe: serve until it closes it.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Read the topics from standard input, print the address, and serve until standard input
    ends.
    """
    topics: dict[str, int] = json.loads(sys.stdin.readline())
    with asyncio.Runner(loop_factory=loop_factory(wanted=True)) as runner:
        runner.run(_serve(topics, int(sys.argv[1])))


if __name__ == "__main__":
    main()
