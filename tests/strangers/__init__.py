"""Brokers that are not the newest Apache Kafka: old releases, and other implementations."""
