"""Implements the consumer's methods, one module for each topic. The guard admits each call."""
