"""Connections to brokers: asyncio streams, correlation ids, time-outs."""
