"""Tools for the people who work on aioprod; nothing in here is needed at run time."""
