"""Crash runs of the exactly-once sink: a package, so that Spark's Python workers can import its
data source.
"""
