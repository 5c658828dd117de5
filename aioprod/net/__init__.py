"""Connections to brokers: asyncio streams, correlation ids, timeouts."""
