"""Whatever a broker stores and other clients read, all readers read: batches of other encoders."""
