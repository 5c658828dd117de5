"""A worker that processes the mails in a topic like a queue. Start any number of workers.

aioprod broker  # a broker for tests, in another terminal
python share_worker.py mails --group mailers
echo '{"to": "a@example.com"}' | aioprod produce mails

Each mail goes to a free worker, regardless of the number of partitions. If a mail can't be sent,
the worker tries three times. Then the mail is delivered once more, to any worker, which also tries
three times. If all attempts fail, or if the mail is not JSON, it is sent to the topic mails.dead,
with the reason in its headers. On SIGTERM, the worker sends its remaining mails and stops.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import Any

from aioprod import Admin, JsonDeserializer, connection_settings
from aioprod.admin import ConfigResource
from aioprod.processing import Record, RetryPolicy, ShareProcessor


async def send_mail(mail: Record[bytes | None, Any]) -> None:
    """Send a mail. If it raises an exception, the mail is retried."""
    to = mail.value["to"]
    if "@" not in to:
        raise ValueError("an address has an @")
    await asyncio.sleep(0.01)  # calls a mail server
    print(to, flush=True)


async def run(topic: str, group: str) -> None:
    # Also process mails that were written before the group existed.
    async with Admin(**connection_settings()) as admin:
        configs = {"share.auto.offset.reset": "earliest"}
        await admin.incremental_alter_configs({ConfigResource.group(group): configs})
    worker = ShareProcessor(
        send_mail,
        topic,
        **connection_settings(),
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
    options = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s")
    asyncio.run(run(options.topic, options.group))


if __name__ == "__main__":
    main()
