"""What the client knows of the cluster: brokers, topics, leaders."""
