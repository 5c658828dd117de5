"""examples/spark_delta.py with Delta's jars, PySpark 4.2 and the embedded broker."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

import aioprod
from aioprod import ErrorCode, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import ThreadedCluster, fail
from tests.waiting import programs_per_core

ROOT = Path(aioprod.__file__).parent.parent
INSTALL_TIMEOUT_S, RUN_TIMEOUT_S = 600, 300
READ = """
import json, sys
sys.path.insert(0, sys.argv[1])
from spark_delta import session
spark = session()
rows = spark.read.format("delta").load(sys.argv[2]).selectExpr("customer", "quantity")
print(json.dumps(sorted([row.customer, row.quantity] for row in rows.collect())))
spark.stop()
"""


def order(customer: int, **more: object) -> bytes:
    fields = {"customer": str(customer), "item": "tea", "quantity": 1, "price": 4.5, **more}
    return json.dumps(fields).encode()


async def send(servers: str, values: list[bytes]) -> None:
    async with Producer(servers) as producer:
        await (await producer.send_many("orders", values))


@pytest.mark.interop
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 5 * RUN_TIMEOUT_S)
def test_each_order_is_once_in_the_table_and_in_the_topic(
    threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = [f"{ROOT}[spark]", "pyspark==4.2.1"]
    install = [str(python), "-m", "pip", "install", "--quiet", *packages]
    subprocess.run(install, check=True, timeout=INSTALL_TIMEOUT_S * programs_per_core())
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S * programs_per_core(),
            check=False,
        )

    def store() -> int:
        places = ["--table", table, "--checkpoint", checkpoint, "--once"]
        servers = ["--bootstrap-servers", threaded_broker.bootstrap_servers]
        return run(ROOT / "examples" / "spark_delta.py", *places, *servers).returncode

    def stored() -> list[Any]:
        done = run("-c", READ, ROOT / "examples", table)
        assert done.returncode == 0, done.stderr
        rows: list[Any] = json.loads(done.stdout.splitlines()[-1])
        return rows

    for topic in ("orders", "orders-clean"):
        threaded_broker.create_topic(topic, 2)
    servers = threaded_broker.bootstrap_servers
    asyncio.run(send(servers, [order(number) for number in range(50)] + [b"not JSON"]))
    # The table is written, then the topic refuses: the next run gets the same micro-batch.
    threaded_broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    assert store() != 0
    threaded_broker.clear_rules()
    assert threaded_broker.records("orders-clean", committed_only=True) == []
    expected = sorted([str(number), 1] for number in range(50))
    assert stored() == expected
    assert store() == 0
    assert stored() == expected
    asyncio.run(send(servers, [order(50, quantity=7)]))
    assert store() == 0
    assert stored() == sorted([*expected, ["50", 7]])
    clean = [
        json.loads(record.value or b"")
        for partition in range(2)
        for record in threaded_broker.records("orders-clean", partition, committed_only=True)
    ]
    assert sorted([each["customer"], each["quantity"]] for each in clean) == stored()
