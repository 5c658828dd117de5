"""Tools for developing aioprod, not needed at run time."""
