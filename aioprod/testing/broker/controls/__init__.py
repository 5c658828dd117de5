"""The calls of the embedded broker, by theme. :class:`EmbeddedCluster` has an object of each class,
and forwards their methods.
"""
