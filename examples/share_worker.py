"""A worker that processes mails of a topic like those of a queue: start any number of them.

aioprod broker  # a broker for tests, in another terminal
python share_worker.py mails --group mailers
echo '{"to": "a@example.com"}' | aioprod produce mails

Each mail goes to a free worker, for any number of partitions. A mail that can't be sent is tried
three times, then three times by any worker. Then, or if it is not JSON, it goes to the topic
mails.dead, with the reason in its headers. SIGTERM stops the worker when its mails are sent.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from typing import Any

from aioprod import Admin, JsonDeserializer
from aioprod.admin import ConfigResource
from aioprod.processing import Record, RetryPolicy, ShareProcessor


async def send_mail(mail: Record[bytes | None, Any]) -> None:
    """Send a mail. Whatever it raises is a reason to try again."""
    to = mail.value["to"]
    if "@" not in to:
        raise ValueError("an address has an @")
    await asyncio.sleep(0.01)  # calls a mail server
    print(to, flush=True)


async def run(servers: str, topic: str, group: str) -> None:
    # Mails that were written before the group existed count, too.
    async with Admin(servers) as admin:
        configs = {"share.auto.offset.reset": "earliest"}
        await admin.incremental_alter_configs({ConfigResource.group(group): configs})
    worker = ShareProcessor(
        send_mail,
        topic,
        bootstrap_servers=servers,
        group_id=group,
        value_deserializer=JsonDeserializer(),
        retry=RetryPolicy(attempts=3, backoff_ms=100),
        dead_letter_topic=f"{topic}.dead",
    )
    await worker.run()


def main() -> None:
    parser = argparse.ArgumentParser(description="Send mails.")
    parser.add_argument("topic")
    parser.add_argument("--group", default="mailers")
    parser.add_argument(
        "--bootstrap-servers", default=os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    )
    options = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s")
    asyncio.run(run(options.bootstrap_servers, options.topic, options.group))


if __name__ == "__main__":
    main()
