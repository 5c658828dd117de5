"""Fails while it is imported, if a test says so."""

from aioprod import ProducerInterceptor
from tests.user_code import user_plugin

user_plugin.fail()


class Part(ProducerInterceptor):
    """Is never reached."""
