"""Connections to brokers: sockets, TLS, SASL, requests in flight, timeouts.

A connection is an ``asyncio.BufferedProtocol`` on a transport of the event loop. asyncio's streams
would copy each response and wake a task for it; ``python -m benchmarks.literal_design`` measures
that.
"""
