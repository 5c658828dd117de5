"""The keyword arguments of the clients, for type checkers: one module for each client."""
