"""The settings of topics and brokers."""
