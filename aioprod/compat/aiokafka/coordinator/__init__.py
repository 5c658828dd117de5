"""``aiokafka.coordinator``: assignors, and the data that they exchange."""
