"""lz4 and zstd, each by two libraries: ``backends.py`` chooses. Results and limits are the same."""
