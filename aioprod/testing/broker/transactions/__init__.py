"""The transactions of transactional ids: their state, their coordinator, and how writes become part
of them.
"""
