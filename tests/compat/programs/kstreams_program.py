"""kstreams: a stream with manual commits, and producing. Prints what it has seen.

Arguments: the client ("aiokafka" or "aioprod"), and the bootstrap servers.
"""

# mypy: ignore-errors
import asyncio
import json
import sys

if sys.argv[1] == "aioprod":
    import aioprod.compat.aiokafka

    aioprod.compat.aiokafka.install()

import kstreams
from kstreams.backends.kafka import Kafka

SERVERS = sys.argv[2]


async def main():
    engine = kstreams.create_engine(title="engine", backend=Kafka(bootstrap_servers=[SERVERS]))
    seen = []
    done = asyncio.Event()

    @engine.stream("orders", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    async def orders(cr: kstreams.ConsumerRecord, stream: kstreams.Stream):
        seen.append([cr.topic, cr.offset, cr.key, cr.value, [list(each) for each in cr.headers]])
        await stream.commit()
        if len(seen) == 4:
            done.set()

    await engine.start()
    for number in range(4):
        found = await engine.send("orders", value=b"%d" % number, key="k", headers={"h": "x"})
        seen_offset = found.offset
    await asyncio.wait_for(done.wait(), 30)
    await engine.stop()
    print(json.dumps([seen, seen_offset], default=repr))


asyncio.run(main())
