"""The settings of topics and brokers: which there are, who has set which, and what they come to."""
