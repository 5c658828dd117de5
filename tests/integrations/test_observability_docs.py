"""What docs/observability.md shows works as it stands there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from prometheus_client import REGISTRY

from aioprod import Producer
from aioprod.testing import EmbeddedCluster

TEXT = (Path(__file__).parent.parent.parent / "docs" / "observability.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
_TOP_LEVEL_AWAIT = 0x2000


def compiled(number: int, bootstrap_servers: str) -> CodeType:
    code = compile(
        BLOCKS[number].replace("localhost:9092", bootstrap_servers),
        f"block {number}",
        "exec",
        flags=_TOP_LEVEL_AWAIT,
    )
    assert isinstance(code, CodeType)
    return code


@pytest.mark.parametrize("number", range(len(BLOCKS)))
async def test_the_code_works(number: int, broker: EmbeddedCluster) -> None:
    names: dict[str, Any] = {}
    coroutine = eval(compiled(number, broker.bootstrap_servers), names)
    if inspect.isawaitable(coroutine):
        await coroutine
        assert names["figures"]["record-send-total"] == 1
        return
    producer = names["producer"]
    assert isinstance(producer, Producer)
    async with producer:
        await producer.send_and_wait("orders", b"x")
        scraped = {family.name for family in REGISTRY.collect()}
        assert ("kafka_producer_record_send" in scraped) == ("PrometheusObserver" in BLOCKS[number])
