"""Fails while it is imported, if a test says so."""

import users_part
from aioprod import ProducerInterceptor

users_part.fail()


class Part(ProducerInterceptor):
    """Is never reached."""
