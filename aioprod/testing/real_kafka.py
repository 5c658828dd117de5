"""A real Apache Kafka cluster of one node (KRaft) on this machine, for tests and the demo. ``python
-m aioprod.testing.real_kafka`` starts one.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from aioprod.testing.cache import SetupError
from aioprod.testing.jars import KAFKA_VERSIONS
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_cluster import RealCluster

__all__ = ["RealKafka"]


class RealKafka(RealCluster):
    """One Kafka broker in a separate process, on a free port of 127.0.0.1, with its data in a
    temporary directory.

    Use it as ``with RealKafka() as kafka: ... kafka.bootstrap_servers``. Its calls block. The
    process ends and its data is removed when the ``with`` block or this process ends, even if this
    process is killed.

    Args:
        version: one of ``aioprod.testing.jars.KAFKA_VERSIONS``.
        heap_mb: the JVM's maximum heap size in MiB.
        num_partitions: Kafka's ``num.partitions``, for automatically created topics.
        listeners: listeners in addition to the plain one, for security tests;
            ``bootstrap_servers_of(name)`` returns their addresses.
        scram_users: passwords by user name, for both SCRAM mechanisms. Use made-up passwords: the
            process list shows them while the data directory is formatted.
        settings: more lines for ``server.properties``, by Kafka's names.
        plugins: jars with classes that ``settings`` name, such as metrics reporters.
        start_timeout_s: the longest time to wait until the broker is ready, in seconds.

    Raises:
        ValueError: if an argument is invalid.
    """

    def __init__(
        self,
        *,
        version: str = KAFKA_VERSIONS[0],
        heap_mb: int = 320,
        num_partitions: int = 1,
        listeners: Sequence[Listener] = (),
        scram_users: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        plugins: Sequence[Path] = (),
        start_timeout_s: float = 90,
    ) -> None:
        super().__init__(
            1,
            version=version,
            heap_mb=heap_mb,
            session_timeout_ms=9_000,
            listeners=lambda _: listeners,
            scram_users=scram_users,
            settings={"num.partitions": str(num_partitions), **(settings or {})},
            plugins=plugins,
            start_timeout_s=start_timeout_s,
        )

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None if the broker is not started."""
        return next((process.pid for process in self._processes.values()), None)


def main() -> None:
    """Run a broker in the foreground until Ctrl-C or SIGTERM, and print its address."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        with RealKafka() as kafka:
            print(kafka.bootstrap_servers, flush=True)
            signal.pause()
    except SetupError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
