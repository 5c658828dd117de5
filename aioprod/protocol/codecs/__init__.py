"""lz4 and zstd, each with two libraries, between which ``backends.py`` chooses. Results and limits
are the same.
"""
