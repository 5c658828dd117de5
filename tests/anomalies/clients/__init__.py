"""The clients that can be judged, behind one interface."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from types import ModuleType

from aioprod.testing.jars import KAFKA_VERSIONS
from tests.anomalies.clients.interface import LIMIT_S, Assigned, Member, Sender

__all__ = ["CLIENTS", "LIMIT_S", "Assigned", "Client", "Member", "NewMember", "NewSender", "Sender"]

NewSender = Callable[[str, str, str | None, int | None], Sender]
"""Make a sender from the bootstrap servers, a topic, a transactional id, and the longest time of a
transaction in milliseconds; None for the client's default.
"""
NewMember = Callable[[str, str, str, Assigned], Member]
"""Make a member from the bootstrap servers, a topic, a group and what is called with the assigned
partitions.
"""


@dataclass(frozen=True)
class Client:
    """A client of Kafka, whose library is imported when it is needed.

    Attributes:
        module: in this package.
        prefix: that of the names of its classes.
        distribution: the name of its distribution; empty for clients of other languages.
        environment: more environment variables of its process.
        on_demand: whether it has to be named, as it needs more than the tests' packages.
    """

    module: str
    prefix: str
    distribution: str
    environment: Mapping[str, str] = field(default_factory=dict)
    on_demand: bool = False

    @property
    def version(self) -> str:
        """The installed version."""
        if self.distribution:
            return version(self.distribution)
        return str(getattr(self._imported(), "version", lambda: KAFKA_VERSIONS[0])())

    def prepare(self) -> None:
        """Fetch and compile what the client needs, which may take minutes."""
        getattr(self._imported(), "prepare", lambda: None)()

    def _imported(self) -> ModuleType:
        return importlib.import_module(f"{__name__}.{self.module}")

    def load(self) -> tuple[NewSender, NewMember]:
        """Import the client and return its sender and its member."""
        module = self._imported()
        sender: NewSender = getattr(module, f"{self.prefix}Sender")
        member: NewMember = getattr(module, f"{self.prefix}Member")
        return sender, member


CLIENTS: dict[str, Client] = {
    "aioprod": Client("aioprod_client", "Aioprod", "aioprod"),
    "aioprod-pure": Client("aioprod_client", "Aioprod", "aioprod", {"AIOPROD_PURE": "1"}),
    "aiokafka": Client("aiokafka_client", "Aiokafka", "aiokafka"),
    "confluent-kafka": Client("confluent_client", "Confluent", "confluent-kafka"),
    "confluent-kafka-aio": Client("confluent_aio_client", "ConfluentAio", "confluent-kafka"),
    "kafka-python": Client("kafka_python_client", "KafkaPython", "kafka-python"),
    "java": Client("java_client", "Java", ""),
    "franz-go": Client("franz_go_client", "FranzGo", "", on_demand=True),
}
