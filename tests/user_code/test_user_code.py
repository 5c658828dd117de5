"""An error of users' code, of any kind, changes nothing but what it is for: at each seam."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest

from aioprod import Assignor, ConsumerInterceptor, ConsumerRecord, Producer, RebalanceListener
from aioprod.config.client import ClientConfig
from aioprod.config.consumer import CustomAssignor
from aioprod.errors import DeserializationError
from aioprod.net.authentication import new_mechanism
from aioprod.oauth_token import OAuthToken
from aioprod.testing import EmbeddedCluster
from tests.selection import by_default_each
from tests.user_code.consumer_seams import (
    CONSUMER_SEAMS,
    GROUP,
    ZERO,
    cluster,
    consumer_of,
    read,
    reading,
)
from tests.user_code.discovery import (
    methods_of,
    optional_attributes,
    seams_of_parameters,
    seams_of_settings,
)
from tests.user_code.observer_seams import OBSERVER_SEAMS
from tests.user_code.plugin_seams import OAUTH, PLUGIN_SEAMS, SECURITY, good_token
from tests.user_code.producer_seams import PRODUCER_SEAMS, QUICK
from tests.user_code.seams import ENDS_PROGRAM, KINDS, Seam, run_seam
from tests.user_code.spark_seams import SPARK_SEAMS

SEAMS = [*PRODUCER_SEAMS, *PLUGIN_SEAMS, *CONSUMER_SEAMS, *OBSERVER_SEAMS]
# Classes of ours that are parameters. An OpenTelemetryObserver is a ProducerObserver, and so on.
OURS = frozenset(
    {
        "QuerySigns",
        *("Delivery", "OutboxRelay", "ProducerBatch"),
        *("OpenTelemetryObserver", "OpenTelemetryConsumerObserver"),
    }
)
OF_ANY = {"partition_assignment_strategy": Assignor}
# Attributes that a plug-in may have, and those of data.
HOOKS = {
    "configure": "plugin.configure",
    "close": "plugin.close",
    "on_new_batch": "Partitioner.on_new_batch",
}
DATA = {
    *("partition", "state", "num_rows", "strerror", "throttle_time_ms"),
    *("connection_invalidated", "orig", "sqlstate"),  # errors of databases
}


def kinds_at(place: int) -> Iterator[tuple[str, list[pytest.MarkDecorator]]]:
    """Yield the kinds of errors at a seam: by default an Exception, and at each second seam one of
    the others.
    """
    usual, *others = KINDS
    yield usual, []
    for number, kind in enumerate(others):
        yield kind, by_default_each(2 * len(others), place + number)


@pytest.mark.parametrize(
    ("seam", "kind"),
    [
        pytest.param(
            seam,
            kind,
            id=f"{seam}-{kind}",
            marks=[*marks, *([pytest.mark.all_packages] if seam in SPARK_SEAMS else [])],
        )
        for place, seam in enumerate([*SEAMS, *SPARK_SEAMS])
        for kind, marks in kinds_at(place)
    ],
)
def test_an_error_of_user_code_stays_its_own(seam: Seam, kind: str) -> None:
    run_seam(seam, KINDS[kind]())


def test_every_seam_has_a_row() -> None:
    found = seams_of_parameters(OURS) | seams_of_settings(OF_ANY, OURS) | set(HOOKS.values())
    found = {name.replace("CustomPartitioner", "Partitioner") for name in found}
    # The parameter of a class is the setting of that name.
    found = {re.sub(r"^\w+\((\w+_(?:de)?serializer)\)$", r"\1", name) for name in found}
    # The base class has the optional methods, too.
    found = found - set(methods_of(CustomAssignor)) | set(methods_of(Assignor))
    rows = [*SEAMS, *(SPARK_SEAMS if importlib.util.find_spec("pyspark") else [])]
    # A class or an import path may be given: creating and importing it is user code, too.
    assert {seam.name for seam in rows} == found | {
        "plugin()",
        "import of a plugin",
    }


def test_optional_methods_of_plugins_are_known() -> None:
    assert optional_attributes() == set(HOOKS) | DATA


# -- what is cancelled for real --------------------------------------------------------------------


async def test_a_cancelled_start_cancels_the_token_provider() -> None:
    asked, cancelled = asyncio.Event(), False

    async def provide() -> OAuthToken:
        nonlocal cancelled
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise
        return await good_token()

    settings = {**QUICK, **OAUTH, "sasl_oauth_token_provider": provide}
    async with EmbeddedCluster(security=SECURITY) as broker:
        producer = Producer(broker.bootstrap_servers, **settings)
        starting = asyncio.create_task(producer.start())
        await asked.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await producer.close()
    assert cancelled


@pytest.mark.parametrize("settings", [GROUP, {}], ids=["group", "no group"])
async def test_a_cancelled_call_cancels_its_listener(settings: dict[str, Any]) -> None:
    reported = asyncio.Event()

    class Slow(RebalanceListener):
        async def on_partitions_assigned(self, partitions: object) -> None:
            reported.set()
            await asyncio.Event().wait()

    async with cluster() as broker, consumer_of(broker, **settings) as consumer:
        consumer.subscribe(["t"], listener=Slow())
        call = asyncio.create_task(consumer.getone(timeout_ms=5_000))
        await reported.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(await read(consumer)) == 8


async def test_a_closed_coroutine_ends_the_wait_for_a_token() -> None:
    async def provide() -> OAuthToken:
        await asyncio.sleep(0)
        return await good_token()

    config = ClientConfig(**OAUTH, sasl_oauth_token_provider=provide)
    coroutine = new_mechanism(config, "localhost")
    coroutine.send(None)
    coroutine.close()  # raises what the coroutine raises instead of GeneratorExit


# -- several at once -------------------------------------------------------------------------------


async def test_an_interceptor_that_leaves_records_out_hides_none_that_cant_be_read() -> None:
    class Odd(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            return [record for record in records if record.offset % 2]

    def deserialize(topic: str, headers: object, data: bytes | None) -> bytes | None:
        if data == b"2":
            raise ValueError("unreadable")
        return data

    async with cluster() as broker:
        settings = {"interceptors": [Odd()], "value_deserializer": deserialize}
        async with reading(broker, ZERO, **settings) as consumer:
            assert [record.offset for record in await read(consumer, 1)] == [1]
            for _ in range(2):
                with pytest.raises(DeserializationError) as raised:
                    await consumer.getone(timeout_ms=60_000)
                assert raised.value.offset == 2
            consumer.seek(ZERO, 3)
            assert [record.offset for record in await read(consumer, 1)] == [3]


@pytest.mark.parametrize("error", ENDS_PROGRAM)
def test_what_ends_a_program_ends_it_once_and_in_order(error: type[BaseException]) -> None:
    """Each of many callbacks calls ``sys.exit``: ``asyncio.run`` still closes the producer."""
    closed: list[int] = []

    async def main() -> None:
        async with EmbeddedCluster() as broker:
            async with Producer(broker.bootstrap_servers, **QUICK) as producer:
                try:
                    deliveries = [await producer.send("t", b"v") for _ in range(20)]
                    for delivery in deliveries:
                        delivery.add_done_callback(stop)
                    await asyncio.Event().wait()
                finally:
                    await producer.close()
                    closed.append(len(broker.records("t")))

    def stop(_: object) -> None:
        raise error

    with pytest.raises(error):
        asyncio.run(main())
    assert closed == [20]
