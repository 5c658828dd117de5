"""Strategies for the subject under which a schema is registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

SubjectNameStrategy: TypeAlias = Callable[[str, bool, str | None], str]
"""``(topic, is_key, record name) -> subject``."""


def topic_name(topic: str, is_key: bool, record_name: str | None) -> str:
    """Return ``topic-key`` or ``topic-value``: all records of a topic have one schema."""
    return f"{topic}-key" if is_key else f"{topic}-value"


def record_name(topic: str, is_key: bool, record_name: str | None) -> str:
    """Return the full name of the record: its schema is the same in all topics.

    Raises:
        ValueError: if the schema has no name.
    """
    if not record_name:
        raise ValueError("the schema has no name, which the subject name strategy requires")
    return record_name


def topic_record_name(topic: str, is_key: bool, record_name: str | None) -> str:
    """Return ``topic-name of the record``: a topic has records of several schemas.

    Raises:
        ValueError: if the schema has no name.
    """
    if not record_name:
        raise ValueError("the schema has no name, which the subject name strategy requires")
    return f"{topic}-{record_name}"
