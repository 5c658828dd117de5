"""The Kafka protocol as bytes: no sockets, no clock, no event loop."""
