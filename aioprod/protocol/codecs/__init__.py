"""lz4 and zstd, each with two libraries that give the same results; ``backends.py`` chooses one."""
