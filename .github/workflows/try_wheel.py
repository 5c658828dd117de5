"""Send a record with the installed package: the wheel works without a checkout."""

import asyncio

from aioprod import Producer, native
from aioprod.testing import EmbeddedCluster


async def main() -> None:
    assert native.in_use, native.reason_not_in_use
    async with EmbeddedCluster() as broker, Producer(broker.bootstrap_servers) as producer:
        assert (await producer.send_and_wait("orders", b"42")).offset == 0


asyncio.run(main())
