"""Exactly-once writes: each task leaves its transaction open, the driver logs one decision and then
commits all of them. Independent of Spark.
"""
