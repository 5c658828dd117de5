"""Kafka's SASL mechanisms: bytes in, bytes out. No socket, clock or random number. No repr and no
message contains secrets.
"""
