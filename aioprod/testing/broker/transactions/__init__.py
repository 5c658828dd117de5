"""The transactions of transactional ids: their state, their coordinator, and adding writes to
them.
"""
