"""The transactions of transactional ids: their state, their coordinator, and the addition of
writes.
"""
