"""A pipeline: events from a Kafka topic, totals to another one, and dead letters to a third."""
