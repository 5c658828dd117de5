"""Client quotas (KIP-13, 124, 219, 546): limits on the bytes that clients produce and fetch, and
throttling of clients that exceed them.
"""
