"""Connections, metadata, coordinators, start and close, for all clients."""
