"""The public client of a schema registry."""

from __future__ import annotations

import random
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote

from aioprod.closing import close_in_turn
from aioprod.config.redaction import hide_arguments
from aioprod.errors import ConfigError
from aioprod.misuse import names_cures
from aioprod.public_module import Uncopyable, set_module
from aioprod.schema_registry.answers import Answer
from aioprod.schema_registry.http import HttpSettings, RegistryHttp
from aioprod.schema_registry.schemas import (
    Compatibility,
    CompatibilityResult,
    Mode,
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaRegistryError,
    Version,
    body_of,
)
from aioprod.schema_registry.sharing import BoundedCache, SingleFlight

V = TypeVar("V")

_MOST_REFERENCES = 1000


@names_cures()
@set_module("aioprod.schema_registry")
class SchemaRegistry(Uncopyable):
    """A client of a Schema Registry (Confluent's API, version 1), for asyncio.

    Use it as ``async with SchemaRegistry("http://localhost:8081") as registry:`` in one event loop,
    and share it between any number of tasks, serializers and clients. Results that can't change,
    such as the schema of an id, are cached. Concurrent calls for the same result share one request,
    which continues if one of the callers is cancelled.

    Args:
        url: ``http://`` or ``https://`` addresses, in a list or separated by commas. If one fails,
            the next one is used. The first may contain a user name and password
            (``https://user:pw@host``).
        basic_auth: user name and password.
        bearer_token: a token, or a coroutine function that returns one for each request.
        ssl_context: for custom certificates, or with ``load_cert_chain`` for mutual TLS.
        proxy: the URL of an HTTP proxy; None uses ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``
            of the environment. Errors don't show it, as it may contain a password.
        context: the name of a context, such as ``".staging"``, to which all subjects and ids
            belong, unless a subject names another context.
        request_timeout_ms: the timeout of one attempt.
        timeout_ms: the timeout of a call with all its attempts.
        retry_backoff_ms, retry_backoff_max_ms: the wait before all addresses are retried for the
            first time, and the longest wait.
        max_connections: the maximum number of connections to a registry.
        cache_size: the maximum number of cached results of each kind of lookup.
        rng: the source of the backoff's jitter.

    Raises:
        ConfigError: if an argument is invalid.
    """

    @hide_arguments
    def __init__(
        self,
        url: str | Iterable[str],
        *,
        basic_auth: tuple[str, str] | None = None,
        bearer_token: str | Callable[[], Awaitable[str]] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        context: str | None = None,
        request_timeout_ms: float = 10_000,
        timeout_ms: float = 30_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 2_000,
        max_connections: int = 20,
        cache_size: int = 1_000,
        rng: random.Random | None = None,
    ) -> None:
        settings = HttpSettings(
            urls=url,
            basic_auth=basic_auth,
            bearer_token=bearer_token,
            ssl_context=ssl_context,
            proxy=proxy,
            request_timeout_ms=request_timeout_ms,
            timeout_ms=timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            max_connections=max_connections,
        )
        if isinstance(cache_size, bool) or not isinstance(cache_size, int) or cache_size < 1:
            raise ConfigError(f"cache_size={cache_size!r}: must be a whole number of at least 1")
        self._http = RegistryHttp(settings, rng or random.Random())
        self._prefix = ""
        if context:
            self._prefix = f":{context if context.startswith('.') else f'.{context}'}:"
        self._flights = SingleFlight()
        # Results that never change, by (kind, arguments).
        self._kept: BoundedCache[Hashable, Any] = BoundedCache(cache_size)

    async def close(self) -> None:
        """End the calls in progress, and close all connections."""
        await close_in_turn(self._flights.close, self._http.close)

    async def __aenter__(self) -> Self:
        """Connect when the first call is made."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close, as :meth:`close` does."""
        await self.close()

    # -- schemas -----------------------------------------------------------------------------------

    async def register(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Register a schema as the next version of a subject; return the existing one if it has it.

        Raises:
            SchemaRegistryError: if it is invalid (42201) or not compatible (409). All calls raise
                it if the registry refuses the request, or can't be reached.
            KafkaTimeoutError: if the registry does not respond within ``timeout_ms``; in all calls.
        """
        return await self._keep(
            ("register", subject, schema, normalize),
            partial(
                self._post_schema,
                f"{self._subject(subject)}/versions",
                subject,
                schema,
                {"normalize": _text(normalize)},
            ),
        )

    async def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """Return a schema's version and id in a subject.

        Raises:
            SchemaRegistryError: if there is no such subject (40401) or schema (40403).
        """
        query = {"normalize": _text(normalize), "deleted": _text(deleted)}
        make = partial(self._post_schema, self._subject(subject), subject, schema, query)
        key = ("lookup", subject, schema, normalize)
        return await (self._once((*key, "deleted"), make) if deleted else self._keep(key, make))

    async def get_schema(self, schema_id: int, *, form: str | None = None) -> Schema:
        """Return the schema with this id.

        Args:
            schema_id: its number.
            form: its format, such as "serialized" for a Protobuf descriptor.

        Raises:
            SchemaRegistryError: if the registry does not have it (40403).
        """
        query = {} if form is None else {"format": form}
        if self._prefix:
            query["subject"] = self._prefix
        return await self._keep(
            ("id", schema_id, form), partial(self._get_schema, f"/schemas/ids/{schema_id}", query)
        )

    async def get_schema_by_guid(self, guid: str, *, form: str | None = None) -> Schema:
        """Return the schema with this GUID. Otherwise it works like :meth:`get_schema`."""
        query = {} if form is None else {"format": form}
        path = f"/schemas/guids/{quote(guid, safe='')}"
        return await self._keep(("guid", guid, form), partial(self._get_schema, path, query))

    async def get_version(
        self, subject: str, version: Version = "latest", *, form: str | None = None
    ) -> RegisteredSchema:
        """Return a version of a subject, even a deleted one if it is given by its number.

        Raises:
            SchemaRegistryError: if there is no such subject (40401) or version (40402).
        """
        make = partial(self._get_version, subject, version, form)
        key = ("version", subject, version, form)
        return await (self._once(key, make) if version == "latest" else self._keep(key, make))

    async def resolve(self, schema: Schema, *, form: str | None = None) -> dict[str, Schema]:
        """Return all schemas that a schema uses, directly or indirectly, by the names of their
        references; each of them precedes those that use it.

        Raises:
            SchemaRegistryError: if a schema is missing, or there are more than 1,000.
        """
        found: dict[str, Schema] = {}
        # Schemas that are being resolved, each above those that it uses. No recursion, as a chain
        # may be as long as the limit.
        above: dict[str, Schema] = {}
        waiting: list[tuple[str | None, Iterator[SchemaReference]]] = [
            (None, iter(schema.references))
        ]
        while waiting:
            name, references = waiting[-1]
            reference = next(references, None)
            if reference is None:
                waiting.pop()
                if name is not None:
                    found[name] = above.pop(name)
            elif reference.name not in found and reference.name not in above:
                _check_number(len(found) + len(above), reference)
                version = await self.get_version(reference.subject, reference.version, form=form)
                above[reference.name] = version.schema
                waiting.append((reference.name, iter(version.schema.references)))
        return found

    # -- subjects and versions ---------------------------------------------------------------------

    async def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the names of the subjects that begin with ``prefix``."""
        query = {"subjectPrefix": self._qualified(prefix), "deleted": _text(deleted)}
        found = await self._call("GET", "/subjects", query=query)
        return [name.removeprefix(self._prefix) for name in found.texts()]

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject."""
        path = f"{self._subject(subject)}/versions"
        query = {"deleted": _text(deleted)}
        return (await self._call("GET", path, query=query, subject=subject)).numbers()

    async def places(self, schema_id: int) -> list[tuple[str, int]]:
        """Return the subjects and versions that have the schema with this id."""
        query = {"subject": self._prefix} if self._prefix else None
        path = f"/schemas/ids/{schema_id}/versions"
        found = (await self._call("GET", path, query=query)).places()
        return [(name.removeprefix(self._prefix), version) for name, version in found]

    async def referenced_by(self, subject: str, version: Version) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        path = f"{self._subject(subject)}/versions/{version}/referencedby"
        return (await self._call("GET", path, subject=subject)).numbers()

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject, and return its versions. Their ids stay valid until it is deleted again
        with ``permanent``.
        """
        return (await self._delete(self._subject(subject), subject, permanent)).numbers()

    async def delete_version(
        self, subject: str, version: Version, *, permanent: bool = False
    ) -> int:
        """Delete a version of a subject, and return its number. See :meth:`delete_subject`."""
        path = f"{self._subject(subject)}/versions/{version}"
        return (await self._delete(path, subject, permanent)).number()

    # -- compatibility and modes -------------------------------------------------------------------

    async def check_compatibility(
        self, subject: str, schema: Schema, version: Version | None = "latest"
    ) -> CompatibilityResult:
        """Check a schema against a version of a subject, or all versions (None), at the subject's
        compatibility level.
        """
        path = f"/compatibility{self._subject(subject)}/versions"
        if version is not None:
            path += f"/{version}"
        query = {"verbose": "true"}
        found = await self._call("POST", path, query=query, body=body_of(schema), subject=subject)
        return found.compatibility()

    async def get_compatibility(self, subject: str | None = None) -> Compatibility:
        """Return the compatibility level of a subject, or the global one if it has none."""
        query = {"defaultToGlobal": "true"} if subject is not None else None
        found = await self._call("GET", self._of("config", subject), query=query)
        return cast("Compatibility", found.text("compatibilityLevel"))

    async def set_compatibility(self, level: Compatibility, subject: str | None = None) -> None:
        """Set the compatibility level of a subject, or the global one."""
        path = self._of("config", subject)
        await self._call("PUT", path, body={"compatibility": level}, subject=subject)

    async def reset_compatibility(self, subject: str) -> None:
        """Remove a subject's compatibility level, so that the global one applies."""
        await self._call("DELETE", self._of("config", subject), subject=subject)

    async def get_mode(self, subject: str | None = None) -> Mode:
        """Return the mode of a subject, or the global one if it has none."""
        query = {"defaultToGlobal": "true"} if subject is not None else None
        found = await self._call("GET", self._of("mode", subject), query=query)
        return cast("Mode", found.text("mode"))

    async def set_mode(
        self, mode: Mode, subject: str | None = None, *, force: bool = False
    ) -> None:
        """Set the mode of a subject, or the global one. ``force`` allows IMPORT even if there are
        schemas.
        """
        await self._call(
            "PUT",
            self._of("mode", subject),
            query={"force": _text(force)},
            body={"mode": mode},
            subject=subject,
        )

    async def reset_mode(self, subject: str) -> None:
        """Remove a subject's mode, so that the global one applies."""
        await self._call("DELETE", self._of("mode", subject), subject=subject)

    async def contexts(self) -> list[str]:
        """Return the names of all contexts; the default one is ``"."``."""
        return (await self._call("GET", "/contexts")).texts()

    async def schema_types(self) -> list[str]:
        """Return the schema types that the registry supports."""
        return (await self._call("GET", "/schemas/types")).texts()

    # -- parts -------------------------------------------------------------------------------------

    async def _keep(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return a cached result that never changes; fetch it if it is not cached."""
        found: V | None = self._kept.get(key)
        if found is None:
            found = await self._once(key, make)
            self._kept.put(key, found)
        return found

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        subject: str | None = None,
    ) -> Answer:
        content = await self._http.call(method, path, query=query, body=body, subject=subject)
        return Answer(content, f"{method} {path}", subject)

    async def _once(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        return await self._flights.run(key, make)

    async def _post_schema(
        self, path: str, subject: str, schema: Schema, query: dict[str, str]
    ) -> RegisteredSchema:
        found = await self._call("POST", path, query=query, body=body_of(schema), subject=subject)
        return found.registered(subject, schema)

    async def _get_schema(self, path: str, query: dict[str, str]) -> Schema:
        return (await self._call("GET", path, query=query)).schema()

    async def _get_version(
        self, subject: str, version: Version, form: str | None
    ) -> RegisteredSchema:
        query = {} if form is None else {"format": form}
        if version != "latest":
            query["deleted"] = "true"
        path = f"{self._subject(subject)}/versions/{version}"
        return (await self._call("GET", path, query=query, subject=subject)).registered(subject)

    async def _delete(self, path: str, subject: str, permanent: bool) -> Answer:
        query = {"permanent": "true"} if permanent else None
        try:
            return await self._call("DELETE", path, query=query, subject=subject)
        finally:
            self._kept.drop(lambda key: isinstance(key, tuple) and key[1] == subject)

    def _qualified(self, subject: str) -> str:
        return subject if subject.startswith(":") else self._prefix + subject

    def _subject(self, subject: str) -> str:
        return f"/subjects/{quote(self._qualified(subject), safe='')}"

    def _of(self, what: str, subject: str | None) -> str:
        if subject is None:
            return f"/{what}/{quote(self._prefix, safe='')}" if self._prefix else f"/{what}"
        return f"/{what}/{quote(self._qualified(subject), safe='')}"


def _text(value: bool) -> str:
    return "true" if value else "false"


def _check_number(found: int, reference: SchemaReference) -> None:
    if found >= _MOST_REFERENCES:
        raise SchemaRegistryError(
            f"a schema refers to more than {_MOST_REFERENCES} others",
            status=0,
            subject=reference.subject,
        )
