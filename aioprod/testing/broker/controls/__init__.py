"""The methods of the embedded broker, by subject. :class:`EmbeddedCluster` has an object of each
class, and forwards calls to it.
"""
