"""Java's Kafka client, in the version of the real broker, controlled from Python by Py4J (part of
PySpark).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import py4j.java_gateway  # type: ignore[import-untyped]
from py4j.java_gateway import JavaGateway

from aioprod.testing.jars import kafka_jars
from aioprod.testing.java import find_java

_SERIALIZATION = "org.apache.kafka.common.serialization"
POLL_MS = 200


class JavaClients:
    """Makes producers and consumers in one Java process."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm

    def producer(self, **settings: str) -> Any:
        """Make a KafkaProducer of bytes; underscores in names of settings stand for dots."""
        serializer = f"{_SERIALIZATION}.ByteArraySerializer"
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(
            self.properties(
                {**settings, "key_serializer": serializer, "value_serializer": serializer}
            )
        )

    def consumer(self, **settings: str) -> Any:
        """Make a KafkaConsumer of bytes."""
        return self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._reading(settings))

    def share_consumer(self, **settings: str) -> Any:
        """Make a KafkaShareConsumer of bytes."""
        return self._jvm.org.apache.kafka.clients.consumer.KafkaShareConsumer(
            self._reading(settings)
        )

    def _reading(self, settings: Mapping[str, str]) -> Any:
        deserializer = f"{_SERIALIZATION}.ByteArrayDeserializer"
        return self.properties(
            {**settings, "key_deserializer": deserializer, "value_deserializer": deserializer}
        )

    def admin(self, **settings: str) -> Any:
        """Make an Admin."""
        return self._jvm.org.apache.kafka.clients.admin.Admin.create(self.properties(settings))

    @property
    def jvm(self) -> Any:
        """Py4J's view of the JVM."""
        return self._jvm

    def records_before(self, offset: int) -> Any:
        """Make a RecordsToDelete. Its factory has the same name as a getter, and Py4J finds only
        the getter.
        """
        long = self._gateway.new_array(self._jvm.java.lang.Class, 1)
        long[0] = self._jvm.java.lang.Long.TYPE
        arguments = self._gateway.new_array(self._jvm.java.lang.Object, 1)
        arguments[0] = offset
        made = self._jvm.java.lang.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete")
        return made.getMethod("beforeOffset", long).invoke(None, arguments)

    def properties(self, settings: Mapping[str, str]) -> Any:
        """Make a java.util.Properties."""
        properties = self._jvm.java.util.Properties()
        for name, value in settings.items():
            properties.put(name.replace("_", "."), value)
        return properties

    def record(self, topic: str, partition: int, value: bytes) -> Any:
        """Make a ProducerRecord."""
        return self._jvm.org.apache.kafka.clients.producer.ProducerRecord(
            topic, partition, None, value
        )

    def partition(self, topic: str, partition: int) -> Any:
        """Make a TopicPartition."""
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)

    def offsets(self, topic: str, partition: int, offset: int) -> Any:
        """Make a map from one TopicPartition to an OffsetAndMetadata."""
        found = self._jvm.java.util.HashMap()
        found.put(
            self.partition(topic, partition),
            self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(offset),
        )
        return found

    def group(self, group_id: str, generation_id: int = -1, member_id: str = "") -> Any:
        """Make a ConsumerGroupMetadata."""
        no_instance_id = self._jvm.java.util.Optional.empty()
        return self._jvm.org.apache.kafka.clients.consumer.ConsumerGroupMetadata(
            group_id, generation_id, member_id, no_instance_id
        )

    def seconds(self, count: int) -> Any:
        """Make a Duration."""
        return self._jvm.java.time.Duration.ofSeconds(count)

    def read(
        self, consumer: Any, topic: str, partitions: int, count: int, polls: int = 100
    ) -> list[bytes]:
        """Read ``count`` values from the start of all partitions, and check whether there are
        more.
        """
        places = self._jvm.java.util.ArrayList()
        for index in range(partitions):
            places.add(self.partition(topic, index))
        consumer.assign(places)
        consumer.seekToBeginning(places)
        values: list[bytes] = []
        while len(values) < count and polls:
            values += self._poll(consumer)
            polls -= 1
        return sorted(values + self._poll(consumer))

    def _poll(self, consumer: Any) -> list[bytes]:
        return [
            bytes(record.value())
            for record in consumer.poll(self._jvm.java.time.Duration.ofMillis(POLL_MS)).iterator()
        ]


@contextmanager
def java_clients() -> Iterator[JavaClients]:
    """Run Java until the block ends. Raise SetupError if Java or the jars are not available."""
    jars = os.pathsep.join(str(jar) for jar in kafka_jars())
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    port, process = py4j.java_gateway.launch_gateway(
        classpath=jars,
        die_on_exit=True,
        java_path=str(find_java()),
        javaopts=options,
        return_proc=True,
    )
    gateway = JavaGateway(
        gateway_parameters=py4j.java_gateway.GatewayParameters(port=port, auto_convert=True)
    )
    try:
        yield JavaClients(gateway)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(10)
        process.stdout.close()
