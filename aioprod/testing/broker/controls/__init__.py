"""What a test can do to the embedded broker, by theme. :class:`EmbeddedCluster` owns one object of
each class and offers their methods as its own.
"""
