"""What all clients share: connections, metadata, coordinators, start and close."""
