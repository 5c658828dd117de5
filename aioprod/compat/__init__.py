"""Other clients' names on aioprod, for programs that are to change clients without an edit."""
