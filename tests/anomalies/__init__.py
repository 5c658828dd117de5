"""Any client of Kafka under faults, judged by what it promised and what the log contains."""
