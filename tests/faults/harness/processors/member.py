"""A processor in a process of its own: it notes each step of its handlers in its ledger.

SIGTERM ends it in good order, and it ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aioprod import ProducerRecord
from aioprod.processing import Processor, Record
from tests.faults.harness.child import end_with_parent
from tests.faults.harness.groups.ledger import ERROR, LedgerWriter

BEGIN, DONE = "begin", "done"
MOST_SECONDS_OF_HANDLER = 0.05


@dataclass(frozen=True)
class Settings:
    """The settings of a processor.

    Attributes:
        settings: those of `Processor`.
    """

    servers: str
    topic: str
    output: str
    group: str
    ledger: str
    settings: dict[str, Any]

    def to_json(self) -> str:
        """Return the argument of the program."""
        return json.dumps(asdict(self))


async def run(settings: Settings) -> None:
    """Process until SIGTERM."""
    ledger = LedgerWriter(Path(settings.ledger))

    async def handle(record: Record[Any, Any]) -> ProducerRecord:
        place = f"{record.partition} {record.offset} {record.key.decode()}"
        ledger.note(BEGIN, place)
        await asyncio.sleep(random.uniform(0, MOST_SECONDS_OF_HANDLER))
        ledger.note(DONE, place)
        return ProducerRecord(settings.output, record.value, record.key, partition=record.partition)

    processor = Processor(
        handle,
        settings.topic,
        bootstrap_servers=settings.servers,
        group_id=settings.group,
        **settings.settings,
    )
    try:
        await processor.run()
    except BaseException as error:
        ledger.note(ERROR, repr(error))
        raise


def main() -> None:
    """Run a processor; the argument has its settings."""
    end_with_parent()
    asyncio.run(run(Settings(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
