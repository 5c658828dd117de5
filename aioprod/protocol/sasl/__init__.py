"""Kafka's SASL mechanisms: bytes in, bytes out, without sockets, clock or random numbers. Reprs and
errors contain no secrets.
"""
