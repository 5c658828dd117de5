"""``aiokafka.coordinator.assignors``."""
