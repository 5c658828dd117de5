"""Tests of all clients on services that are not Apache Kafka."""
