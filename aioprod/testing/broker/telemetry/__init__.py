"""Metrics that clients push to the embedded broker (KIP-714)."""
