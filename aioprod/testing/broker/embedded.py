"""The embedded broker as users know it: on their event loop, or on one of its own in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Unpack

from anyio.from_thread import start_blocking_portal

from aioprod.testing.broker.broker import ClusterOnLoop, ClusterSettings
from aioprod.testing.broker.threaded import ThreadedCluster


class EmbeddedCluster(ClusterOnLoop):
    """A Kafka broker in this process and on this event loop, for tests, demos and trying things
    out.

    It speaks Kafka's own protocol to any client: metadata, produce (idempotent as well), fetch,
    offsets, transactions, creating and deleting topics, and classic consumer groups. What it does
    not know its ApiVersions answer leaves out, such as the newer consumer protocol (KIP-848).
    Nothing is written to disk and nothing is deleted by age: topic settings such as retention.ms
    are kept but do nothing.

    With several nodes each has a port of its own, leads some partitions and coordinates some
    transactional ids. Nodes can be stopped, started and frozen, and leaders moved. A follower has
    all records at once, unless its replication is paused.

    Args:
        nodes: how many nodes there are; their ids are 1, 2, ...
        host: address to bind and to advertise.
        port: port of the first node to bind (the next one takes the next port), 0 for any free
            ones; kept when a node is stopped and started again.
        replication_factor: of topics created without one (broker setting
            default.replication.factor); None for 3, or all where there are fewer nodes.
        num_partitions: of topics created without a number (broker setting num.partitions).
        auto_create_topics: create topics when a client asks for their metadata (broker setting
            auto.create.topics.enable).
        max_message_bytes: largest record batch in bytes (broker setting message.max.bytes).
        max_memory_bytes: the most bytes of record batches held; more are refused with
            POLICY_VIOLATION and a text that says why.
        wall_clock: seconds since 1970, for log append time; ``time.time`` where none is given.
        random_source: gives topic ids.
        transaction_version: the feature transaction.version, 0 to 2; with 2 clients use transaction
            protocol v2 (KIP-890).
        replica_lag_time_max_ms: after which a follower that lacks records is no longer in sync
            (broker setting replica.lag.time.max.ms).
        groups: what consumer groups are allowed; None for :class:`aioprod.testing.GroupSettings`'s
            defaults.
        security: TLS and SASL, if clients are to use them.
    """

    @classmethod
    @contextmanager
    def in_thread(cls, **settings: Unpack[ClusterSettings]) -> Iterator[ThreadedCluster]:
        """Run a broker on an event loop of its own in a thread of its own, for synchronous code,
        until the ``with`` block ends.

        Takes the arguments of the class: ``with EmbeddedCluster.in_thread(num_partitions=3) as
            broker: ...``
        """
        with start_blocking_portal() as portal:
            broker = portal.call(lambda: cls(**settings))
            with portal.wrap_async_context_manager(broker):
                yield ThreadedCluster(broker, portal)
