"""The client: its calls, what concurrent calls share, retries, limits, credentials."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from typing import Any

import pytest
import trustme

from aioprod import ConfigError, KafkaTimeoutError
from aioprod.schema_registry import Schema, SchemaReference, SchemaRegistry, SchemaRegistryError
from aioprod.schema_registry.sharing import BoundedCache
from aioprod.testing.registry import EmbeddedSchemaRegistry

TEXT = Schema('"string"')
LONG = Schema('"long"')


def record(*fields: dict[str, Any]) -> Schema:
    return Schema(json.dumps({"type": "record", "name": "r", "fields": fields}))


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "int"}
B_WITH_DEFAULT = {**B, "default": 0}


# -- calls -----------------------------------------------------------------------------------------


async def test_register_and_look_up(registry: SchemaRegistry) -> None:
    first = await registry.register("s", record(A))
    second = await registry.register("s", record(A, B_WITH_DEFAULT))
    assert (first.id, first.version, second.id, second.version) == (1, 1, 2, 2)
    assert await registry.register("s", record(A)) == first
    assert await registry.lookup("s", record(A)) == first
    assert (await registry.get_schema(2)).text == second.schema.text.replace(" ", "")
    assert (await registry.get_version("s")).id == 2
    assert (await registry.get_version("s", 1)).id == 1
    assert first.guid is not None
    assert await registry.get_schema_by_guid(first.guid) == await registry.get_schema(1)
    assert await registry.versions("s") == [1, 2]
    assert await registry.subjects() == ["s"] and await registry.subjects("t") == []
    assert await registry.places(2) == [("s", 2)]
    assert set(await registry.schema_types()) == {"AVRO", "JSON", "PROTOBUF"}


@pytest.mark.parametrize(
    ("call", "status", "code"),
    [
        (lambda r: r.get_schema(9), 404, 40403),
        (lambda r: r.get_version("none"), 404, 40401),
        (lambda r: r.get_version("s", 9), 404, 40402),
        (lambda r: r.lookup("s", LONG), 404, 40403),
        (lambda r: r.register("s", Schema("{")), 422, 42201),
        (lambda r: r.register("s", LONG), 409, 409),
        (lambda r: r.delete_subject("s", permanent=True), 404, 40405),
        (lambda r: r.set_compatibility("BEST"), 422, 42203),
        (lambda r: r.set_mode("BEST"), 422, 42204),
        (lambda r: r.reset_compatibility("s"), 404, 40408),
    ],
)
async def test_a_refusal_has_its_codes(
    registry: SchemaRegistry, call: Any, status: int, code: int
) -> None:
    await registry.register("s", TEXT)
    with pytest.raises(SchemaRegistryError, match=str(code)) as raised:
        await call(registry)
    assert (raised.value.status, raised.value.code) == (status, code)
    assert not raised.value.retriable


async def test_deleted_versions(registry: SchemaRegistry) -> None:
    await registry.register("s", TEXT)
    assert await registry.delete_version("s", 1) == 1
    assert await registry.versions("s", deleted=True) == [1]
    assert (await registry.get_version("s", 1)).id == 1
    assert await registry.delete_version("s", 1, permanent=True) == 1
    with pytest.raises(SchemaRegistryError, match="40401"):
        await registry.get_version("s", 1)
    again = await registry.register("s", TEXT)
    assert (again.version, await registry.delete_subject("s")) == (1, [1])
    assert await registry.subjects() == [] and await registry.subjects(deleted=True) == ["s"]
    assert await registry.delete_subject("s", permanent=True) == [1]


async def test_a_schema_in_use_is_not_deleted(registry: SchemaRegistry) -> None:
    await registry.register("base", Schema('{"type":"fixed","name":"f","size":2}'))
    reference = SchemaReference("f", "base", 1)
    used = await registry.register(
        "s", Schema('{"type":"array","items":"f"}', references=(reference,))
    )
    assert await registry.referenced_by("base", 1) == [used.id]
    with pytest.raises(SchemaRegistryError, match="42206"):
        await registry.delete_version("base", 1)
    assert list(await registry.resolve(used.schema)) == ["f"]


async def test_compatibility(registry: SchemaRegistry) -> None:
    assert await registry.get_compatibility() == "BACKWARD"
    await registry.register("s", record(A))
    worse = await registry.check_compatibility("s", record(A, B))
    assert not worse and "no such field" in worse.messages[0]
    assert await registry.check_compatibility("s", record(A, B_WITH_DEFAULT), None)
    await registry.set_compatibility("NONE", "s")
    assert await registry.get_compatibility("s") == "NONE"
    assert await registry.check_compatibility("s", record(A, B))
    await registry.reset_compatibility("s")
    assert await registry.get_compatibility("s") == "BACKWARD"


async def test_modes(registry: SchemaRegistry) -> None:
    await registry.set_mode("READONLY", "s")
    assert (await registry.get_mode("s"), await registry.get_mode()) == ("READONLY", "READWRITE")
    with pytest.raises(SchemaRegistryError, match="read-only"):
        await registry.register("s", TEXT)
    await registry.reset_mode("s")
    await registry.register("s", TEXT)


async def test_contexts_have_ids_of_their_own(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry
) -> None:
    await registry.register("s", LONG)
    async with SchemaRegistry(server.url, context="staging") as staging:
        assert (await staging.register("s", TEXT)).id == 1
        assert await staging.get_schema(1) == TEXT
        assert await staging.subjects() == ["s"]
        assert await staging.contexts() == [".", ".staging"]
        await staging.set_compatibility("NONE")
        assert await staging.get_compatibility("s") == "NONE"
    assert await registry.get_schema(1) == LONG
    assert await registry.get_compatibility("s") == "BACKWARD"
    assert server.subjects() == ["s", ":.staging:s"]


async def test_names_of_subjects_may_have_any_characters(registry: SchemaRegistry) -> None:
    name = "a/b c%2F?ä"
    await registry.register(name, TEXT)
    assert await registry.subjects() == [name]
    assert await registry.versions(name) == [1]


# -- sharing ---------------------------------------------------------------------------------------


async def test_a_hundred_lookups_of_one_id_are_one_request(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry
) -> None:
    await registry.register("s", TEXT)
    server.calls.clear()
    found = await asyncio.gather(*(registry.get_schema(1) for _ in range(100)))
    assert found == [TEXT] * 100 and len(server.calls) == 1
    await registry.get_schema(1)
    assert len(server.calls) == 1


async def test_a_cancelled_caller_does_not_end_the_request_of_the_others(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry
) -> None:
    await registry.register("s", TEXT)
    server.calls.clear()
    calls = [asyncio.create_task(registry.get_schema(1)) for _ in range(3)]
    await asyncio.sleep(0)
    calls[0].cancel()
    assert await asyncio.gather(*calls[1:]) == [TEXT, TEXT]
    assert calls[0].cancelled() and len(server.calls) == 1


async def test_each_caller_gets_an_error_of_its_own_and_errors_are_not_kept(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry
) -> None:
    errors = await asyncio.gather(
        *(registry.get_schema(1) for _ in range(3)), return_exceptions=True
    )
    assert len({id(error) for error in errors}) == 3 and len(server.calls) == 1
    assert all(isinstance(error, SchemaRegistryError) for error in errors)
    await registry.register("s", TEXT)
    assert await registry.get_schema(1) == TEXT


async def test_close_ends_the_calls_in_progress(server: EmbeddedSchemaRegistry) -> None:
    server.delay_s = 0.2
    registry = SchemaRegistry(server.url)
    call = asyncio.create_task(registry.get_schema(1))
    await asyncio.sleep(0)
    await registry.close()
    with pytest.raises(SchemaRegistryError, match="closed"):
        await call
    with pytest.raises(SchemaRegistryError, match="closed"):
        await registry.get_schema(1)


def test_a_cache_forgets_what_was_unused_for_longest() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.get("a")
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 429, 500, 503])
async def test_failures_that_may_pass_are_retried(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry, status: int
) -> None:
    server.fail(status, times=3)
    assert (await registry.register("s", TEXT)).id == 1
    assert len(server.calls) >= 4


async def test_a_delete_is_not_repeated(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry
) -> None:
    await registry.register("s", TEXT)
    server.fail(503)
    with pytest.raises(SchemaRegistryError, match="503"):
        await registry.delete_subject("s")


async def test_the_next_address_is_asked_if_one_fails(server: EmbeddedSchemaRegistry) -> None:
    async with SchemaRegistry(["http://127.0.0.1:1", server.url]) as registry:
        assert await registry.subjects() == []
        server.fail(500)
        assert await registry.subjects() == []
    async with SchemaRegistry(
        "http://127.0.0.1:1,http://127.0.0.1:2", timeout_ms=50, retry_backoff_ms=20
    ) as nowhere:
        with pytest.raises((SchemaRegistryError, KafkaTimeoutError), match=r"127\.0\.0\.1"):
            await nowhere.subjects()


async def test_a_call_ends_in_time(server: EmbeddedSchemaRegistry) -> None:
    server.delay_s = 30
    async with SchemaRegistry(server.url, request_timeout_ms=20, timeout_ms=100) as registry:
        began = asyncio.get_running_loop().time()
        with pytest.raises((SchemaRegistryError, KafkaTimeoutError), match="timeout_ms"):
            await registry.subjects()
        assert asyncio.get_running_loop().time() - began < 5


# -- credentials -----------------------------------------------------------------------------------


async def test_credentials() -> None:
    async def token() -> str:
        return "t0ken"

    right: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"basic_auth": ("ann", "pä:ss")}, {"basic_auth": ("ann", "pä:ss")}),
        ({"bearer_token": "t0ken"}, {"bearer_token": "t0ken"}),
        ({"bearer_token": "t0ken"}, {"bearer_token": token}),
    ]
    for wanted, given in right:
        async with EmbeddedSchemaRegistry(**wanted) as server:
            async with SchemaRegistry(server.url, **given) as registry:
                assert await registry.subjects() == []
            async with SchemaRegistry(server.url) as registry:
                with pytest.raises(SchemaRegistryError, match="401"):
                    await registry.subjects()
    async with EmbeddedSchemaRegistry(basic_auth=("ann", "p/w")) as server:
        url = server.url.replace("://", "://ann:p%2Fw@")
        async with SchemaRegistry(url) as registry:
            assert await registry.subjects() == []


async def test_no_frame_or_text_of_an_error_has_the_credentials() -> None:
    async with EmbeddedSchemaRegistry(basic_auth=("ann", "other")) as server:
        for port in (server.url.rpartition(":")[2], "1"):
            url = f"http://ann:s3cret@127.0.0.1:{port}"
            async with SchemaRegistry(url, timeout_ms=50) as registry:
                with pytest.raises((SchemaRegistryError, KafkaTimeoutError)) as raised:
                    await registry.subjects()
            error: BaseException | None = raised.value
            while error is not None:
                seen = [str(error)]
                frame = error.__traceback__
                while frame is not None:
                    if frame.tb_frame.f_code.co_filename != __file__:
                        seen += map(repr, frame.tb_frame.f_locals.values())
                    frame = frame.tb_next
                encoded = base64.b64encode(b"ann:s3cret").decode()
                assert not [text for text in seen if "s3cret" in text or encoded in text]
                error = error.__cause__ or error.__context__


async def test_mutual_tls(tmp_path: Any) -> None:
    authority = trustme.CA()
    of_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(of_server)
    authority.configure_trust(of_server)
    of_server.verify_mode = ssl.CERT_REQUIRED
    of_client = ssl.create_default_context()
    authority.configure_trust(of_client)
    async with EmbeddedSchemaRegistry(ssl_context=of_server) as server:
        async with SchemaRegistry(server.url, ssl_context=of_client, timeout_ms=200) as stranger:
            with pytest.raises((SchemaRegistryError, KafkaTimeoutError)):
                await stranger.subjects()
        authority.issue_cert("client@example.org").configure_cert(of_client)
        async with SchemaRegistry(server.url, ssl_context=of_client) as registry:
            assert await registry.subjects() == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"url": ""}, "url is empty"),
        ({"url": "localhost:8081"}, "must begin with http"),
        ({"url": "http://a", "basic_auth": ("a", "b"), "bearer_token": "c"}, "both set"),
        ({"url": "http://a", "timeout_ms": 0}, "timeout_ms=0: must be"),
        ({"url": "http://a", "cache_size": 0}, "cache_size=0: must be"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        SchemaRegistry(**arguments)
