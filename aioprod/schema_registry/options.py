"""The options that all serializers share."""

from __future__ import annotations

from typing import TypedDict

from aioprod.schema_registry.subjects import SubjectNameStrategy


class SerializerOptions(TypedDict, total=False):
    """The keyword arguments of :class:`aioprod.schema_registry.serializers.SchemaSerializer`."""

    is_key: bool
    auto_register: bool
    use_latest_version: bool
    use_schema_id: int | None
    latest_ttl_ms: float | None
    normalize: bool
    subject: SubjectNameStrategy
    id_in_header: bool
