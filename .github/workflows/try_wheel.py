"""Send a record with the installed package, and read it: the wheel works without a checkout.

``try_wheel.py pure`` expects a wheel without the accelerator.
"""

import asyncio
import sys

import aioprod
from aioprod import Consumer, Producer, native
from aioprod.testing import EmbeddedCluster


async def main() -> None:
    assert native.in_use is ("pure" not in sys.argv), native.reason_not_in_use
    async with EmbeddedCluster() as broker:
        servers = broker.bootstrap_servers
        async with Producer(servers) as producer:
            assert (await producer.send_and_wait("orders", b"42", key=b"7")).offset == 0
        async with Consumer(
            "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            record = await anext(aiter(consumer))
            assert (record.key, record.value, record.offset) == (b"7", b"42", 0)
    print(aioprod.__file__)


asyncio.run(main())
