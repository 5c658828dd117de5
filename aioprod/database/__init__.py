"""Addresses of databases, asyncpg, and tables with versions, for the outbox and the inbox."""
