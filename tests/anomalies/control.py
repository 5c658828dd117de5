"""Actions of campaigns on a cluster, its topics and its proxies."""

from __future__ import annotations

import asyncio
import resource
import time

from aioprod import Admin
from aioprod.admin import ConfigResource
from aioprod.cluster.client import ClusterClient
from tests.anomalies.node_network import NodeNetwork
from tests.faults.harness.cluster_control import ClusterControl
from tests.faults.harness.groups.runner import java_hash

COORDINATORS = ("__consumer_offsets", "__transaction_state")
"""The topics whose leaders coordinate groups and transactions."""
REPLICAS = 3
_COORDINATOR_PARTITIONS = 5
_CREATED_LIMIT_S = 60.0
_SPREAD_S = 1.0
"""The time after which all nodes have noticed that a topic was created."""


class CampaignControl(ClusterControl):
    """Faults of one fault's campaign.

    Attributes:
        recreated: when the topics were deleted, and since when they exist again.
        between_nodes: the proxies between the nodes, if the fault needs them.
    """

    recreated: list[tuple[float, float]]
    between_nodes: NodeNetwork | None = None

    def delay(self, node: int, requests: bool, answers: bool) -> None:
        """Delay what passes between all clients and a node, as a network does that loses packets:
        it is delivered later, after what the client has sent meanwhile on other connections.
        """
        for proxy in self.proxies[node]:
            proxy.delay(requests=requests, answers=answers)

    def pass_all(self) -> None:
        """Deliver what was delayed."""
        for proxies in self.proxies.values():
            for proxy in proxies:
                proxy.pass_all()

    def isolate(self, node: int) -> None:
        """Cut a node off from the others, but not from clients."""
        assert self.between_nodes is not None
        self.between_nodes.isolate(node)

    def join(self) -> None:
        """Deliver what was delayed between nodes."""
        assert self.between_nodes is not None
        self.between_nodes.join()

    async def leader(self, topic: str) -> int:
        """Return the leader of the partition that coordinates all clients (`coordinated`)."""
        async with ClusterClient(self.cluster.bootstrap_servers) as client:
            info = (await client.refresh_topics([topic])).topics[topic]
            return info.partitions[0].leader

    async def set_least_in_sync(self, replicas: int) -> None:
        """Set ``min.insync.replicas`` of all topics."""
        async with Admin(self.cluster.bootstrap_servers) as admin:
            changed = await admin.incremental_alter_configs(
                {
                    ConfigResource.topic(topic): {"min.insync.replicas": replicas}
                    for topic in self.topics
                }
            )
        assert not changed.errors, changed.errors

    def limit_files(self, *nodes: int) -> None:
        """Let no file of these nodes grow, so that each write to a log fails. Kafka treats all
        failures as that of a full disk: a node whose only directory fails ends.
        """
        for node in nodes:
            pid = self.cluster._process(node).pid
            assert pid is not None
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    async def recreate(self, seconds: float) -> None:
        """Delete the topics, and create them again after some seconds."""
        began = time.monotonic()
        async with Admin(self.cluster.bootstrap_servers) as admin:
            deleted = await admin.delete_topics(self.topics)
        assert not deleted.errors, deleted.errors
        await asyncio.sleep(seconds)
        for topic in self.topics:
            async with asyncio.timeout(_CREATED_LIMIT_S):
                await self.create_topic(topic, REPLICAS)
        await asyncio.sleep(_SPREAD_S)
        self.recreated.append((began, time.monotonic()))


def coordinated(name: str) -> str:
    """Return a topic's name for whose group and transactional id the leaders of the first
    partitions are the coordinators, so that one node coordinates all clients.
    """
    number = 0
    while any(
        (java_hash(f"{name}-{number}-{kind}") & 0x7FFFFFFF) % _COORDINATOR_PARTITIONS
        for kind in ("group", "id")
    ):
        number += 1
    return f"{name}-{number}"
