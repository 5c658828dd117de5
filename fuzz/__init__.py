"""Fuzz targets: what aioprod decodes of bytes that others wrote. README.md says how to run them."""
