"""The APIs of other clients, implemented on aioprod: programs switch without an edit."""
