"""The libraries for snappy, lz4 and zstd. ``backends.py`` chooses one for each codec."""
