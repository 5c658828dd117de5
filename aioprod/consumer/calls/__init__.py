"""What the consumer's methods do, one module for each theme. The guard admits each call."""
