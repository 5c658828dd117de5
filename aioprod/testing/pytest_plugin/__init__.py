"""The pytest plugin: fixtures for applications that use Kafka."""
