"""The producer: from ``send`` to the acknowledged record."""
