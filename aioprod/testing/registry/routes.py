"""The routes of the registry's API, and the handler of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from aioprod.testing.registry.content import Content
from aioprod.testing.registry.store import LEVELS, MODES, TYPES, Refusal, RegistryStore, Version


@dataclass(frozen=True)
class Call:
    """One request.

    Attributes:
        store: the registry's state.
        request: the request.
        body: its JSON; empty if it has none.
    """

    store: RegistryStore
    request: web.Request
    body: dict[str, Any]

    def part(self, name: str) -> str:
        """Return a part of the path."""
        return self.request.match_info[name]

    def query(self, name: str) -> str:
        """Return a query parameter, or "" if it is missing."""
        return self.request.query.get(name, "")

    def asks(self, name: str) -> bool:
        """Return whether a query parameter is true."""
        return self.query(name).lower() == "true"

    @property
    def number(self) -> int:
        """The id in the path."""
        text = self.part("id")
        if not text.isdigit():
            raise Refusal(404, f"Schema {text} not found")
        return int(text)

    @property
    def version(self) -> Version:
        """The version that the path names."""
        deleted = self.asks("deleted")
        return self.store.version(self.part("subject"), self.part("version"), deleted)


def shown(content: Content) -> dict[str, Any]:
    """Return a schema in the API's format."""
    found: dict[str, Any] = {"schema": content.text, "guid": content.guid}
    if content.type != "AVRO":
        found["schemaType"] = content.type
    if content.references:
        found["references"] = [
            {"name": name, "subject": subject, "version": number}
            for name, subject, number in content.references
        ]
    return found


def place(version: Version) -> dict[str, Any]:
    """Return a version in the API's format."""
    numbers = {"subject": version.subject, "version": version.number, "id": version.id}
    return numbers | shown(version.content)


def _register(call: Call) -> Any:
    return place(call.store.register(call.part("subject"), call.body))


def _lookup(call: Call) -> Any:
    return place(call.store.lookup(call.part("subject"), call.body, call.asks("deleted")))


def _by_id(call: Call) -> Any:
    return shown(call.store.by_id(call.number, call.query("subject")))


def _by_guid(call: Call) -> Any:
    return shown(call.store.by_guid(call.part("guid")))


def _places(call: Call) -> Any:
    found = call.store.places(call.number, call.query("subject"))
    return [{"subject": each.subject, "version": each.number} for each in found]


def _subjects(call: Call) -> Any:
    return call.store.subjects(call.query("subjectPrefix"), call.asks("deleted"))


def _versions(call: Call) -> Any:
    found = call.store.versions(call.part("subject"), call.asks("deleted"))
    return [each.number for each in found]


def _delete_subject(call: Call) -> Any:
    return call.store.delete_subject(call.part("subject"), call.asks("permanent"))


def _delete_version(call: Call) -> Any:
    subject, version = call.part("subject"), call.part("version")
    return call.store.delete_version(subject, version, call.asks("permanent"))


def _check(call: Call) -> Any:
    number = call.request.match_info.get("version")
    faults = call.store.check(call.part("subject"), number, call.body)
    found: dict[str, Any] = {"is_compatible": not faults}
    return found | ({"messages": faults} if call.asks("verbose") else {})


def _settings(what: str, shown_as: str, given_as: str, allowed: tuple[str, ...], code: int) -> Any:
    """Make the handlers (get, put and delete) for compatibility levels or modes."""

    def of(call: Call) -> dict[str, str]:
        found: dict[str, str] = getattr(call.store, what)
        return found

    def subject_of(call: Call) -> str:
        return call.request.match_info.get("subject", "")

    def get(call: Call) -> Any:
        subject = subject_of(call)
        if subject and subject not in of(call) and not call.asks("defaultToGlobal"):
            raise Refusal(code, f"Subject '{subject}' has no {shown_as} of its own")
        return {shown_as: call.store.setting(of(call), subject)}

    def put(call: Call) -> Any:
        value = call.body.get(given_as)
        if value not in allowed:
            raise Refusal(42203 if what == "levels" else 42204, f"Invalid {given_as}: {value}")
        of(call)[subject_of(call)] = value
        return {given_as: value}

    def delete(call: Call) -> Any:
        before = of(call).pop(subject_of(call), None)
        if before is None:
            raise Refusal(code, f"Subject '{subject_of(call)}' has no {shown_as} of its own")
        return {shown_as: before}

    return get, put, delete


_get_level, _put_level, _delete_level = _settings(
    "levels", "compatibilityLevel", "compatibility", LEVELS, 40408
)
_get_mode, _put_mode, _delete_mode = _settings("modes", "mode", "mode", MODES, 40409)
_VERSION = "/subjects/{subject}/versions/{version}"
_CHECK = "/compatibility/subjects/{subject}/versions"

ROUTES: tuple[tuple[str, str, Callable[[Call], Any]], ...] = (
    ("GET", "/subjects", _subjects),
    ("POST", "/subjects/{subject}", _lookup),
    ("DELETE", "/subjects/{subject}", _delete_subject),
    ("GET", "/subjects/{subject}/versions", _versions),
    ("POST", "/subjects/{subject}/versions", _register),
    ("GET", _VERSION, lambda call: place(call.version)),
    ("DELETE", _VERSION, _delete_version),
    ("GET", f"{_VERSION}/referencedby", lambda call: call.store.referenced_by(call.version)),
    ("GET", "/schemas/types", lambda call: list(TYPES)),
    ("GET", "/schemas/ids/{id}", _by_id),
    ("GET", "/schemas/ids/{id}/versions", _places),
    ("GET", "/schemas/guids/{guid}", _by_guid),
    ("POST", f"{_CHECK}/{{version}}", _check),
    ("POST", _CHECK, _check),
    ("GET", "/contexts", lambda call: call.store.contexts()),
    ("GET", "/config", _get_level),
    ("PUT", "/config", _put_level),
    ("GET", "/config/{subject}", _get_level),
    ("PUT", "/config/{subject}", _put_level),
    ("DELETE", "/config/{subject}", _delete_level),
    ("GET", "/mode", _get_mode),
    ("PUT", "/mode", _put_mode),
    ("GET", "/mode/{subject}", _get_mode),
    ("PUT", "/mode/{subject}", _put_mode),
    ("DELETE", "/mode/{subject}", _delete_mode),
)
