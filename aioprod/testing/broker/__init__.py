"""The embedded broker: ``embedded.py`` has its calls, ``store.py`` its state, ``handlers/`` its
responses.
"""
