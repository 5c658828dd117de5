"""All readers read everything that a broker stores and other clients read: batches of other
encoders.
"""
