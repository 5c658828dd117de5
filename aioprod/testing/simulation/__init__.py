"""Deterministic simulation: the unchanged client and broker on an event loop with virtual time and a seeded network in memory."""
