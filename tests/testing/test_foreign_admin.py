"""Administration by other clients: librdkafka, kafka-python, aiokafka and Java."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import confluent_kafka.admin
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AiokafkaPartitions
from aiokafka.admin import NewTopic as AiokafkaTopic
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaResourceType
from confluent_kafka import KafkaException, Producer, TopicPartition

from aioprod.testing import EmbeddedCluster, ThreadedCluster
from tests.testing.java_client import JavaClients, java_clients

with warnings.catch_warnings():
    # It reads its resources in a deprecated way.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition as PythonPlace
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType, KafkaAdminClient
    from kafka.admin import NewPartitions as PythonPartitions
    from kafka.admin import NewTopic as PythonTopic

LIMIT_SECONDS = 20.0
rd: Any = confluent_kafka.admin  # it has no __all__


@pytest.fixture
def broker() -> Iterator[ThreadedCluster]:
    """Two nodes: administrative requests go to the controller, to leaders, or to a particular
    broker.
    """
    with EmbeddedCluster.in_thread(nodes=2) as running:
        yield running


def fill(broker: ThreadedCluster, topic: str) -> None:
    """Write six records to each partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in range(2):
        for number in range(6):
            producer.produce(topic, b"%d" % number, b"key", partition=partition)
    assert producer.flush(LIMIT_SECONDS) == 0


def test_librdkafka(broker: ThreadedCluster) -> None:
    admin = rd.AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def result(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(LIMIT_SECONDS)

    result(admin.create_topics([rd.NewTopic("t", 1, 2, config={"retention.ms": "7000"})]))
    with pytest.raises(KafkaException, match="already exists"):
        result(admin.create_topics([rd.NewTopic("t", 1, 2)]))
    result(admin.create_partitions([rd.NewPartitions("t", 2)]))
    cluster = admin.describe_cluster(include_authorized_operations=True).result(LIMIT_SECONDS)
    assert sorted(node.id for node in cluster.nodes) == [1, 2]
    assert cluster.authorized_operations

    topic = rd.ConfigResource(rd.ResourceType.TOPIC, "t")
    assert result(admin.describe_configs([topic]))["retention.ms"].value == "7000"
    change = rd.ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=rd.AlterConfigOpType.APPEND
    )
    result(
        admin.incremental_alter_configs(
            [rd.ConfigResource(rd.ResourceType.TOPIC, "t", incremental_configs=[change])]
        )
    )
    assert broker.topic_configs("t")["cleanup.policy"] == "delete,compact"
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        result(
            admin.alter_configs(
                [rd.ConfigResource(rd.ResourceType.TOPIC, "t", set_config={"segment.ms": "5000"})]
            )
        )
    assert broker.topics["t"].configs == {"segment.ms": "5000"}
    assert (
        result(admin.describe_configs([rd.ConfigResource(rd.ResourceType.BROKER, "2")]))[
            "node.id"
        ].value
        == "2"
    )

    fill(broker, "t")
    deleted = result(admin.delete_records([TopicPartition("t", 1, 4)]))
    assert deleted.low_watermark == 4
    places = {TopicPartition("t", index): rd.OffsetSpec.earliest() for index in range(2)}
    earliest = admin.list_offsets(places)
    assert sorted(
        (place.partition, future.result(LIMIT_SECONDS).offset) for place, future in earliest.items()
    ) == [(0, 0), (1, 4)]
    result(admin.delete_topics(["t"]))
    assert not broker.topics


def test_kafka_python(broker: ThreadedCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=20_000)
    try:
        admin.create_topics([PythonTopic("t", 1, 2, topic_configs={"retention.ms": "7000"})])
        admin.create_partitions({"t": PythonPartitions(2)})
        assert sorted(node["broker_id"] for node in admin.describe_cluster()["brokers"]) == [1, 2]
        described = admin.describe_configs([PythonResource(ConfigResourceType.TOPIC, "t")])
        assert "7000" in repr(described)
        admin.alter_configs(
            [PythonResource(ConfigResourceType.TOPIC, "t", {"retention.ms": "8000"})]
        )
        assert broker.topic_configs("t")["retention.ms"] == "8000"
        fill(broker, "t")
        assert "4" in repr(admin.delete_records({PythonPlace("t", 1): 4}))
        assert [record.offset for record in broker.records("t", 1)] == [4, 5]
        admin.delete_topics(["t"])
        assert not broker.topics
    finally:
        admin.close()


async def test_aiokafka() -> None:
    async with EmbeddedCluster(nodes=2) as broker:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics(
                [AiokafkaTopic("t", 1, 2, topic_configs={"retention.ms": "7000"})]
            )
            await admin.create_partitions({"t": AiokafkaPartitions(2)})
            assert len((await admin.describe_cluster())["brokers"]) == 2
            assert "7000" in repr(
                await admin.describe_configs([AiokafkaResource(AiokafkaResourceType.TOPIC, "t")])
            )
            await admin.alter_configs(
                [AiokafkaResource(AiokafkaResourceType.TOPIC, "t", {"retention.ms": "8000"})]
            )
            assert broker.topic_configs("t")["retention.ms"] == "8000"
            await admin.delete_topics(["t"])
            assert not broker.topics
        finally:
            await admin.close()


@pytest.mark.kafka  # needs Java and Kafka's jars
def test_java(broker: ThreadedCluster) -> None:
    """Java's Admin, which has calls for nearly everything."""
    with java_clients() as java:
        made = java.jvm.org.apache.kafka.clients.admin
        admin = java.admin(bootstrap_servers=broker.bootstrap_servers)
        admin.createTopics([made.NewTopic("t", 1, 2).configs({"retention.ms": "7000"})]).all().get()
        admin.createPartitions({"t": made.NewPartitions.increaseTo(2)}).all().get()
        assert admin.describeCluster().nodes().get().size() == 2
        described = admin.describeTopics(["t"]).allTopicNames().get().get("t")
        assert (described.partitions().size(), described.authorizedOperations()) == (2, None)

        resource = java.jvm.org.apache.kafka.common.config.ConfigResource
        topic = resource(resource.Type.TOPIC, "t")
        entry = made.ConfigEntry("cleanup.policy", "compact")
        admin.incrementalAlterConfigs(
            {topic: [made.AlterConfigOp(entry, made.AlterConfigOp.OpType.APPEND)]}
        ).all().get()
        configs = admin.describeConfigs([topic]).all().get().get(topic)
        assert (configs.get("retention.ms").value(), configs.get("cleanup.policy").value()) == (
            "7000",
            "delete,compact",
        )
        assert configs.get("retention.ms").source().toString() == "DYNAMIC_TOPIC_CONFIG"
        first = resource(resource.Type.BROKER, "1")
        assert (
            admin.describeConfigs([first]).all().get().get(first).get("num.partitions").value()
            == "1"
        )

        fill(broker, "t")
        place = java.partition("t", 1)
        deleted = (
            admin.deleteRecords({place: java.records_before(4)}).lowWatermarks().get(place).get()
        )
        assert deleted.lowWatermark() == 4
        assert (
            admin.listOffsets({place: made.OffsetSpec.earliest()}).all().get().get(place).offset()
            == 4
        )
        assert admin.describeLogDirs([1]).allDescriptions().get().get(1).size() == 1

        broker.move_leader("t", 1, 1)
        preferred = java.jvm.org.apache.kafka.common.ElectionType.PREFERRED
        assert admin.electLeaders(preferred, None).partitions().get().keySet().toString() == "[t-1]"
        assert broker.leader("t", 1) == 2
        quota_of_c(java, admin)
        transactions_of_x(java, admin, broker)
        admin.deleteTopics(["t"]).all().get()
        assert not broker.topics
        admin.close()


def quota_of_c(java: JavaClients, admin: Any) -> None:
    """Set a quota and describe it."""
    quota = java.jvm.org.apache.kafka.common.quota
    entity = quota.ClientQuotaEntity({"client-id": "c"})
    admin.alterClientQuotas(
        [
            quota.ClientQuotaAlteration(
                entity, [quota.ClientQuotaAlteration.Op("producer_byte_rate", 5000.0)]
            )
        ]
    ).all().get()
    found = admin.describeClientQuotas(quota.ClientQuotaFilter.all()).entities().get()
    assert found.get(entity).get("producer_byte_rate") == 5000.0


def transactions_of_x(java: JavaClients, admin: Any, broker: ThreadedCluster) -> None:
    """Open a transaction and describe it."""
    producer = java.producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x")
    try:
        producer.initTransactions()
        producer.beginTransaction()
        producer.send(
            java.jvm.org.apache.kafka.clients.producer.ProducerRecord("t", 0, b"key", b"open")
        ).get()
        listed = admin.listTransactions().all().get()
        assert [each.transactionalId() for each in listed] == ["x"]
        described = admin.describeTransactions(["x"]).all().get().get("x")
        assert (described.state().toString(), described.topicPartitions().toString()) == (
            "Ongoing",
            "[t-0]",
        )
        active = (
            admin.describeProducers([java.partition("t", 0)])
            .all()
            .get()
            .get(java.partition("t", 0))
            .activeProducers()
        )
        open_ones = [each for each in active if each.currentTransactionStartOffset().isPresent()]
        assert [each.producerId() for each in open_ones] == [described.producerId()]
        producer.abortTransaction()
    finally:
        producer.close(java.seconds(0))
