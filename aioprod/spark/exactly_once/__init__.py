"""Writes that happen once: each task leaves its transaction open, the driver logs one decision and
then commits all of them. No Spark in here.
"""
