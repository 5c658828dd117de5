"""Tools for the development of aioprod, not needed at run time."""
