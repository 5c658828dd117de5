"""Bridges to other libraries; each module needs an extra of the same name, and nothing imports one
but you.
"""
