"""Group membership: classic and KIP-848 members, assignors, commits."""
