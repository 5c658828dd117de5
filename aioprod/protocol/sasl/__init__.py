"""Kafka's SASL mechanisms. Bytes in, bytes out: no sockets, clock or random numbers. Reprs and
errors contain no secrets.
"""
