"""franz-go's tests of its client, against the embedded cluster: chains of consumer groups and of
transactions.

Each copies records from topic to topic with several balancers, while members join and leave. Each
record must be copied once and in order.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from aioprod.testing import EmbeddedCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

NODES = 3
RECORDS = 20_000
LIMIT_S = 200
CLASSIC = {"range", "cooperative-sticky", "cooperative-sticky/static"}
NEW_GROUPS = {"range/848", "sticky/848", "sticky/848/static"}


async def run(program: Path, test: str, cluster: EmbeddedCluster, *, chaos: bool = False) -> str:
    """Run one of franz-go's tests and return its output."""
    environment = {
        **os.environ,
        "KGO_SEEDS": cluster.bootstrap_servers,
        "KGO_TEST_RF": str(NODES),
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_LOG_LEVEL": "none",
    }
    arguments = ["-test.v", f"-test.run=^{test}$", f"-test.timeout={LIMIT_S}s"]
    process = await asyncio.create_subprocess_exec(
        str(program),
        *arguments,
        env={**environment, "KGO_TEST_CHAOS": "1" if chaos else "0"},
        stdout=PIPE,
        stderr=STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT_S + 20):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0, output.decode()[-10_000:]
    return output.decode()


def assert_all_passed(output: str, test: str) -> None:
    for result, expected in (("PASS", CLASSIC | NEW_GROUPS), ("SKIP", set()), ("FAIL", set())):
        assert set(re.findall(rf"--- {result}: {test}/(\S+)", output)) == expected


@pytest.mark.parametrize("chaos", [False, True], ids=["", "connections die"])
async def test_group_etl(franz_go_tests: Path, chaos: bool) -> None:
    async with EmbeddedCluster(nodes=NODES) as cluster:
        assert_all_passed(
            await run(franz_go_tests, "TestGroupETL", cluster, chaos=chaos), "TestGroupETL"
        )


@pytest.mark.parametrize("transaction_version", [1, 2])
async def test_txn_etl(franz_go_tests: Path, transaction_version: int) -> None:
    async with EmbeddedCluster(nodes=NODES, transaction_version=transaction_version) as cluster:
        assert_all_passed(await run(franz_go_tests, "TestTxnEtl", cluster), "TestTxnEtl")
