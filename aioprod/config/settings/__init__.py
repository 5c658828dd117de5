"""The declarations of all settings, in one module for each kind of client.

To add a setting, declare it here, then run ``python -m aioprod._tools.generate_config``.
"""
