"""SASL mechanisms as Kafka uses them: bytes in, bytes out. No socket, clock or random number;
secrets show in no repr and no message.
"""
