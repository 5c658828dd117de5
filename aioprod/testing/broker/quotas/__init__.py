"""Client quotas (KIP-13, 124, 219, 546): who may send and fetch how much, and the pauses of those
who took more.
"""
