"""``aiokafka.coordinator``: assignors, and what they exchange."""
