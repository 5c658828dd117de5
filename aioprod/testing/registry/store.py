"""The state of a registry and its rules, without I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from aioprod.testing.registry.content import Content, check_avro, content_of, faults_between

LEVELS = (
    "NONE",
    *(base + suffix for base in ("BACKWARD", "FORWARD", "FULL") for suffix in ("", "_TRANSITIVE")),
)
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
TYPES = ("JSON", "PROTOBUF", "AVRO")


class Refusal(Exception):
    """A request that the registry refuses.

    Args:
        code: the registry's error code; its first three digits are the HTTP status.
        message: the reason.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code)[:3])


@dataclass
class Version:
    """A schema in a subject."""

    subject: str
    number: int
    id: int
    content: Content
    deleted: bool = False


class RegistryStore:
    """Subjects, versions, ids, compatibility levels and modes, by context."""

    def __init__(self) -> None:
        self._versions: dict[str, list[Version]] = {}
        self._ids: dict[tuple[str, Content], int] = {}
        self._next: dict[str, Iterator[int]] = {}
        self.levels: dict[str, str] = {"": "BACKWARD"}
        self.modes: dict[str, str] = {"": "READWRITE"}

    # -- schemas -----------------------------------------------------------------------------------

    def register(self, subject: str, body: dict[str, Any]) -> Version:
        """Register a schema."""
        content = self._content(body)
        mode = self.setting(self.modes, subject)
        known = [each for each in self._alive(subject) if each.content == content]
        if known:
            return known[0]
        if mode in ("READONLY", "READONLY_OVERRIDE"):
            raise Refusal(42205, f"Subject '{subject}' is in read-only mode")
        given = body.get("id")
        if given is not None and mode != "IMPORT":
            raise Refusal(42205, f"Subject '{subject}' is not in import mode")
        if mode != "IMPORT":
            level = self.setting(self.levels, subject)
            if faults := self._faults(subject, content, level, self._alive(subject)):
                raise Refusal(
                    409,
                    "Schema being registered is incompatible with an earlier schema for subject "
                    f"'{subject}', details: {faults}",
                )
        return self._added(subject, content, given, body.get("version"))

    def _added(
        self, subject: str, content: Content, schema_id: int | None, number: int | None
    ) -> Version:
        context = context_of(subject)
        if schema_id is None:
            schema_id = self._ids.get((context, content))
        if schema_id is None:
            ids = self._next.setdefault(context, itertools.count(1))
            taken = {taken_id for (where, _), taken_id in self._ids.items() if where == context}
            schema_id = next(number for number in ids if number not in taken)
        self._ids[context, content] = schema_id
        versions = self._versions.setdefault(subject, [])
        if number is None or number < 1:
            number = versions[-1].number + 1 if versions else 1
        version = Version(subject, number, schema_id, content)
        versions.append(version)
        return version

    def lookup(self, subject: str, body: dict[str, Any], deleted: bool) -> Version:
        """Find a schema in a subject."""
        versions = self._versions.get(subject, ()) if deleted else self._alive(subject)
        if not versions:
            self._no_subject(subject)
        content = self._content(body)
        for version in versions:
            if version.content == content:
                return version
        raise Refusal(40403, "Schema not found")

    def by_id(self, schema_id: int, subject: str) -> Content:
        """Return the schema with an id in the context of a subject."""
        context = context_of(subject)
        for (where, content), number in self._ids.items():
            if (where, number) == (context, schema_id):
                return content
        raise Refusal(40403, f"Schema {schema_id} not found")

    def by_guid(self, guid: str) -> Content:
        """Return the schema with a GUID."""
        for _, content in self._ids:
            if content.guid == guid:
                return content
        raise Refusal(40403, f"Schema {guid} not found")

    def places(self, schema_id: int, subject: str) -> list[Version]:
        """Return the versions that have a schema id."""
        self.by_id(schema_id, subject)
        context = context_of(subject)
        return [
            each
            for name in self._versions
            if context_of(name) == context
            for each in self._alive(name)
            if each.id == schema_id
        ]

    # -- subjects and versions ---------------------------------------------------------------------

    def subjects(self, prefix: str, deleted: bool) -> list[str]:
        """Return the names of subjects."""
        wanted = prefix.removeprefix(":*:")
        return [
            name
            for name in self._versions
            if name.startswith(wanted) and (deleted or self._alive(name))
        ]

    def contexts(self) -> list[str]:
        """Return the default context and those that have subjects."""
        return sorted({".", *map(context_of, self._versions)})

    def versions(self, subject: str, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject."""
        found = [each for each in self._versions.get(subject, ()) if deleted or not each.deleted]
        return found or self._no_subject(subject)

    def version(self, subject: str, number: str, deleted: bool = False) -> Version:
        """Return one version, by its number or "latest"."""
        versions = self.versions(subject, deleted)
        if number in ("latest", "-1"):
            return versions[-1]
        if not number.isdigit() or int(number) < 1:
            raise Refusal(42202, f"The specified version '{number}' is not a valid version id.")
        for version in versions:
            if version.number == int(number):
                return version
        raise Refusal(40402, f"Version {number} not found.")

    def referenced_by(self, version: Version) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        place = (version.subject, version.number)
        users = (each for versions in self._versions.values() for each in versions)
        return sorted(
            {
                each.id
                for each in users
                if not each.deleted and any(used[1:] == place for used in each.content.references)
            }
        )

    def delete_subject(self, subject: str, permanent: bool) -> list[int]:
        """Delete a subject; return its versions."""
        if subject not in self._versions:
            self._no_subject(subject)
        alive = self._alive(subject)
        for version in alive:
            self._check_unused(version)
        if permanent:
            if alive:
                raise Refusal(
                    40405,
                    f"Subject '{subject}' was not deleted first before being permanently deleted",
                )
            return [each.number for each in self._versions.pop(subject)]
        if not alive:
            raise Refusal(40404, f"Subject '{subject}' was soft deleted.")
        for version in alive:
            version.deleted = True
        return [each.number for each in alive]

    def delete_version(self, subject: str, number: str, permanent: bool) -> int:
        """Delete a version; return its number."""
        version = self.version(subject, number, deleted=True)
        self._check_unused(version)
        if permanent:
            if not version.deleted:
                raise Refusal(
                    40407,
                    f"Subject '{subject}' Version {number} was not deleted first before being "
                    "permanently deleted",
                )
            self._versions[subject].remove(version)
            if not self._versions[subject]:
                del self._versions[subject]
        elif version.deleted:
            raise Refusal(40406, f"Subject '{subject}' Version {number} was soft deleted.")
        version.deleted = True
        return version.number

    # -- compatibility and modes -------------------------------------------------------------------

    def check(self, subject: str, number: str | None, body: dict[str, Any]) -> list[str]:
        """Return the reasons why a schema is incompatible with a version, or with all versions
        (None).
        """
        content = self._content(body)
        if number is None:
            earlier: Sequence[Version] = self._alive(subject)
        else:
            earlier = [self.version(subject, number)]
        return self._faults(subject, content, self.setting(self.levels, subject), earlier)

    def setting(self, of: dict[str, str], subject: str) -> str:
        """Return the level or mode of a subject: its own, that of its context, or the global
        one.
        """
        context = f":{context_of(subject)}:"
        return of.get(subject) or of.get(context) or of[""]

    # -- parts -------------------------------------------------------------------------------------

    def _content(self, body: dict[str, Any]) -> Content:
        kind = body.get("schemaType") or "AVRO"
        if kind not in TYPES:
            raise Refusal(422, f"Invalid schema type {kind}")
        references = tuple(
            (each["name"], each["subject"], each["version"])
            for each in body.get("references") or ()
        )
        try:
            content = content_of(kind, body.get("schema") or "", references)
            used = self.used_by(content)
            if kind == "AVRO":
                check_avro(content, used)
        except ValueError as error:
            raise Refusal(42201, f"Invalid schema: {error}") from error
        return content

    def used_by(self, content: Content) -> list[Content]:
        """Return the schemas that a schema refers to, each before those that use it."""
        found: dict[Content, None] = {}
        for name, subject, number in content.references:
            named = [each for each in self._versions.get(subject, ()) if each.number == number]
            if not named:
                raise Refusal(
                    42201, f"No schema reference found for subject {subject!r} ({name}, {number})"
                )
            found.update(dict.fromkeys((*self.used_by(named[0].content), named[0].content)))
        return list(found)

    def _faults(
        self, subject: str, content: Content, level: str, earlier: Sequence[Version]
    ) -> list[str]:
        return faults_between(level, content, [each.content for each in earlier], self.used_by)

    def _alive(self, subject: str) -> list[Version]:
        return [each for each in self._versions.get(subject, ()) if not each.deleted]

    def _check_unused(self, version: Version) -> None:
        if self.referenced_by(version):
            place = f"{version.subject} version {version.number}"
            raise Refusal(42206, f"One or more references exist to the schema {place}")

    def _no_subject(self, subject: str) -> NoReturn:
        raise Refusal(40401, f"Subject '{subject}' not found.")


def context_of(subject: str) -> str:
    """Return the context in a subject's qualified name, or the default one."""
    if subject.startswith(":"):
        return subject[1:].partition(":")[0] or "."
    return "."
