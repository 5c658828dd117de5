"""A real Apache Kafka broker of one node (KRaft) on this machine, for tests and the demo. ``python
-m aioprod.testing.real_kafka`` runs one.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from aioprod.testing.cache import SetupError
from aioprod.testing.jars import KAFKA_VERSIONS
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_cluster import RealCluster


class RealKafka(RealCluster):
    """One Kafka broker in a process of its own, listening on a free port of 127.0.0.1, with its
    data in a temporary directory.

    Synchronous: ``with RealKafka() as kafka: ... kafka.bootstrap_servers``. It is gone when the
        ``with`` block or the process ends, however it ends.

    ``version``: one of ``aioprod.testing.jars.KAFKA_VERSIONS``. ``heap_mb``: the JVM's largest
        heap, in MiB.
    ``num_partitions``: Kafka's ``num.partitions``, of topics that are created by use.
    ``listeners``: listeners beside the plain one, for security tests;
        ``bootstrap_servers_of(name)`` gives the address of each.
    ``scram_users``: name to password of the users that SCRAM listeners know, for both SCRAM
        mechanisms. Use made-up passwords: they are seen in the
    process list while the data directory is formatted.
    ``settings``: more lines for ``server.properties``, by Kafka's names. ``start_timeout_s``: the
        longest wait for the broker to serve.
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
            start_timeout_s=start_timeout_s,
        )

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None while the broker is not started."""
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
