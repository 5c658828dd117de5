"""The embedded broker. ``broker.py`` is its outside; ``store.py`` its state; ``handlers/`` what it
answers.
"""
