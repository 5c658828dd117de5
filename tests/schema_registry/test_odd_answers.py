"""Each call of the client, to services that answer what no registry should."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod import KafkaError
from aioprod.schema_registry import Schema, SchemaReference, SchemaRegistry, SchemaRegistryError
from aioprod.schema_registry.answers import Answer
from tests.odd_answers import BODIES, REASONS, RESPONSES, SECRET, OddServer, check_text, response

TEXT = Schema('"string"')
REFERS = Schema('"string"', references=(SchemaReference("a", "b", 1),))
CALLS: dict[str, Callable[[SchemaRegistry], Awaitable[Any]]] = {
    "register": lambda r: r.register("s", TEXT),
    "lookup": lambda r: r.lookup("s", TEXT),
    "get_schema": lambda r: r.get_schema(7),
    "get_schema_by_guid": lambda r: r.get_schema_by_guid("x"),
    "get_version": lambda r: r.get_version("s"),
    "resolve": lambda r: r.resolve(REFERS),
    "subjects": lambda r: r.subjects(),
    "versions": lambda r: r.versions("s"),
    "places": lambda r: r.places(1),
    "referenced_by": lambda r: r.referenced_by("s", 1),
    "delete_subject": lambda r: r.delete_subject("s"),
    "delete_version": lambda r: r.delete_version("s", 1),
    "check_compatibility": lambda r: r.check_compatibility("s", TEXT),
    "get_compatibility": lambda r: r.get_compatibility(),
    "set_compatibility": lambda r: r.set_compatibility("NONE"),
    "reset_compatibility": lambda r: r.reset_compatibility("s"),
    "get_mode": lambda r: r.get_mode(),
    "set_mode": lambda r: r.set_mode("READONLY"),
    "reset_mode": lambda r: r.reset_mode("s"),
    "contexts": lambda r: r.contexts(),
    "schema_types": lambda r: r.schema_types(),
}


def test_the_table_has_each_call() -> None:
    public = {
        name
        for name, call in inspect.getmembers(SchemaRegistry, inspect.iscoroutinefunction)
        if not name.startswith("_") and name != "close"
    }
    assert public == CALLS.keys()


async def outcomes(answer: bytes, timeout_ms: float = 20) -> dict[str, Any]:
    """Return the result or error of each call."""
    found: dict[str, Any] = {}
    server = OddServer()
    server.answer = answer
    async with (
        server.running(),
        SchemaRegistry(
            server.url,
            basic_auth=("alice", SECRET),
            retry_backoff_ms=1,
            retry_backoff_max_ms=1,
            timeout_ms=timeout_ms,
            request_timeout_ms=5_000,
        ) as registry,
    ):
        for name, call in CALLS.items():
            try:
                found[name] = await call(registry)
            except Exception as error:
                found[name] = error
    return found


def check(found: dict[str, Any]) -> None:
    for name, outcome in found.items():
        if isinstance(outcome, Exception):
            assert isinstance(outcome, KafkaError), f"{name}: {outcome!r}"
            check_text(outcome)


@pytest.mark.parametrize("body", BODIES)
async def test_a_body_of_another_shape_is_an_error_of_the_registry(body: str) -> None:
    check(await outcomes(response(BODIES[body])))


@pytest.mark.parametrize("reason", REASONS)
async def test_the_reason_of_a_refusal_can_be_shown(reason: str) -> None:
    for status in (b"401 No", b"409 Conflict"):
        found = await outcomes(response(REASONS[reason], status), timeout_ms=20_000)
        check(found)
        assert all(isinstance(outcome, SchemaRegistryError) for outcome in found.values())


@pytest.mark.parametrize("kind", RESPONSES)
async def test_a_response_that_is_none_is_an_error_of_the_registry(kind: str) -> None:
    check(await outcomes(RESPONSES[kind]))


async def test_an_answer_of_another_service_says_so() -> None:
    found = await outcomes(response(b'{"status": "UP"}'), timeout_ms=20_000)
    assert "is this the address of a schema registry?" in str(found["subjects"])
    assert found["get_schema"].status == 200 and not found["get_schema"].retriable


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "schema",
                    "schemaType",
                    "references",
                    "name",
                    "subject",
                    "version",
                    "guid",
                    "is_compatible",
                    "messages",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=100)
@given(json_values)
def test_any_json_is_a_value_of_the_shape_or_an_error(content: Any) -> None:
    answer = Answer(content, "GET /")
    readings: list[Callable[[], Any]] = [
        answer.texts,
        answer.numbers,
        answer.number,
        lambda: answer.text("mode"),
        answer.places,
        answer.schema,
        lambda: answer.registered("s"),
        lambda: answer.registered("s", TEXT),
        answer.compatibility,
    ]
    for read in readings:
        try:
            hash(repr(read()))
        except SchemaRegistryError as error:
            check_text(error)


async def test_a_chain_of_references_as_long_as_the_limit_is_resolved() -> None:
    class Chain(SchemaRegistry):
        async def get_version(self, subject: str, version: Any = "latest", **form: Any) -> Any:
            number = int(subject) + 1
            found = (SchemaReference(f"{number}", f"{number}", 1),) if number < 1_000 else ()
            schema = Schema('"string"', references=found)
            return Answer({"id": 1, "version": 1, "schema": "1"}, "").registered(subject, schema)

    async with Chain("http://localhost") as registry:
        first = Schema('"string"', references=(SchemaReference("0", "0", 1),))
        assert list(await registry.resolve(first)) == [f"{n}" for n in range(999, -1, -1)]
        more = Schema('"string"', references=(SchemaReference("-1", "-1", 1),))
        with pytest.raises(SchemaRegistryError, match="more than 1000 others"):
            await registry.resolve(more)


@pytest.mark.parametrize("outcome", [5, "", "to\nken", "tök", ValueError(SECRET), "cancelled"])
async def test_a_provider_of_tokens_that_fails_is_an_error_of_the_client(outcome: Any) -> None:
    async def token() -> Any:
        if outcome == "cancelled":
            raise asyncio.CancelledError
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async with SchemaRegistry("http://127.0.0.1:1", bearer_token=token, timeout_ms=50) as registry:
        with pytest.raises(KafkaError) as caught:
            await registry.subjects()
    check_text(caught.value)
