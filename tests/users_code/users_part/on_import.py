"""Fails while it is imported, if a test says so."""

from aioprod import ProducerInterceptor
from tests.users_code import users_part

users_part.fail()


class Part(ProducerInterceptor):
    """Is never reached."""
