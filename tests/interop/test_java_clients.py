"""The Java client with authentication, TLS, and nodes that stop and freeze."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.interop.programs.java_tools import properties_file, run_tool, running_tool

pytestmark = [pytest.mark.kafka, pytest.mark.interop]

PARTITIONS = 3
COUNT = 3_000
PASSWORD = "for-this-test-only"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_passwords_over_tls(mechanism: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = tmp_path / "trusted.pem"
    authority.cert_pem.write_to_path(str(trusted))
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    settings = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": trusted,
        "sasl_jaas_config": (
            f'org.apache.kafka.common.security.{module} required username="alice" '
            f'password="{PASSWORD}";'
        ),
    }
    async with EmbeddedCluster(
        nodes=3, security=BrokerSecurity(context, {"alice": PASSWORD})
    ) as cluster:
        done = await run_tool(
            "VerifiableProducer",
            "--bootstrap-server",
            cluster.bootstrap_servers,
            "--topic",
            "t",
            "--max-messages",
            "20",
            "--producer.config",
            properties_file(tmp_path, **settings),
        )
        assert done.status == 0, done.errors
        assert sorted(record.value or b"" for record in cluster.records("t")) == sorted(
            b"%d" % number for number in range(20)
        )


async def test_nodes_that_stop_and_leaders_that_move(tmp_path: Path) -> None:
    settings = properties_file(
        tmp_path,
        retries=1000,
        enable_idempotence="true",
        retry_backoff_ms=10,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=50,
    )
    async with EmbeddedCluster(nodes=3, num_partitions=PARTITIONS) as cluster:
        cluster.create_topic("t", PARTITIONS)
        arguments = [
            "--bootstrap-server",
            cluster.bootstrap_servers,
            "--topic",
            "t",
            "--throughput",
            "2000",
            "--producer.config",
            settings,
        ]
        async with running_tool(
            "VerifiableProducer", *arguments, "--max-messages", str(COUNT)
        ) as producer:

            async def acknowledged(count: int) -> None:
                await producer.until(lambda events: len(events) > count)

            await acknowledged(300)
            for step, node in enumerate(cluster.node_ids, start=1):
                await cluster.stop_node(node)
                await acknowledged(600 * step)
                await cluster.start_node(node)
                cluster.move_leader("t", (step + 1) % PARTITIONS, node)
            await producer.named("shutdown_complete")
            successes = {
                (event["partition"], event["offset"], event["value"].encode())
                for event in await producer.named("producer_send_success")
            }
        assert successes == {
            (index, record.offset, record.value)
            for index in range(PARTITIONS)
            for record in cluster.records("t", index)
        }
        assert len(successes) == COUNT


async def test_a_frozen_coordinator_and_leader(tmp_path: Path) -> None:
    """The coordinator and a leader freeze at the same time; the consumer continues with the new
    ones.
    """
    async with EmbeddedCluster(nodes=3, num_partitions=PARTITIONS) as cluster:
        cluster.create_topic("t", PARTITIONS)
        settings = properties_file(
            tmp_path,
            heartbeat_interval_ms=50,
            fetch_max_wait_ms=50,
            request_timeout_ms=500,
            default_api_timeout_ms=20_000,
            retry_backoff_ms=20,
        )
        arguments = [
            "--bootstrap-server",
            cluster.bootstrap_servers,
            "--topic",
            "t",
            "--group-id",
            "g",
            "--consumer.config",
            settings,
        ]
        async with running_tool("VerifiableConsumer", *arguments) as consumer:
            await consumer.named("partitions_assigned")
            lost = cluster.coordinator("group", "g")
            cluster.freeze_node(lost)
            cluster.move_coordinator("group", "g", lost % 3 + 1)
            for partition in range(PARTITIONS):
                cluster.move_leader("t", partition, lost % 3 + 1)
            done = await run_tool(
                "VerifiableProducer",
                "--bootstrap-server",
                cluster.address(lost % 3 + 1),
                "--topic",
                "t",
                "--max-messages",
                "300",
            )
            assert done.status == 0, done.errors
            await consumer.until(
                lambda events: (
                    sum(event["count"] for event in events if event["name"] == "records_consumed")
                    == 300
                )
            )
            await consumer.stop()
            cluster.unfreeze_node(lost)
