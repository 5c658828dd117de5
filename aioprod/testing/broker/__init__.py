"""The embedded broker: ``embedded.py`` is its public interface, ``store.py`` its state, and
``handlers/`` handles the requests.
"""
