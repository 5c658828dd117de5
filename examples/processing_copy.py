"""Copies a topic to another one, changing each record. Each record is written exactly once, even if
this program is killed.

python processing_copy.py orders orders-in-capitals
python processing_copy.py orders orders-in-capitals  # shares the partitions

transactional_copy.py does the same with a consumer and a producer.
"""

from __future__ import annotations

import argparse
import asyncio

from aioprod import ProducerRecord, connection_settings
from aioprod.processing import Processor, Record


def make_processor(
    source: str, target: str, session_timeout_ms: int
) -> Processor[bytes | None, bytes | None]:
    async def capitalize(record: Record[bytes | None, bytes | None]) -> ProducerRecord:
        return ProducerRecord(target, (record.value or b"").upper(), record.key)

    return Processor(
        capitalize,
        source,
        **connection_settings(),
        group_id="processing-copy",
        guarantee="exactly_once",
        consumer={
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": min(3_000, session_timeout_ms // 3),
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Copy a topic to another one, each record exactly once."
    )
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--session-timeout-ms", type=int, default=45_000)
    options = parser.parse_args()
    asyncio.run(make_processor(options.source, options.target, options.session_timeout_ms).run())


if __name__ == "__main__":
    main()
