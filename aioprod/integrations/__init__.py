"""Integrations with other libraries. Each module requires an extra of the same name, and aioprod
never imports it itself.
"""
