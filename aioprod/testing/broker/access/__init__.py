"""Access rights: the authorizer, the client that it judges, and the rule of each API."""
