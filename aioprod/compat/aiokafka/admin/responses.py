"""The responses that the admin client returns, with the fields of aiokafka's."""

from __future__ import annotations

from typing import Any, ClassVar

Fields = tuple["str | tuple[str, Fields]", ...]
"""Names of fields. A field that is a list of tuples also has the names of their items."""


class Response:
    """A response: its fields are attributes, its lists contain tuples. ``to_object()`` returns
    dictionaries instead.
    """

    FIELDS: ClassVar[Fields]

    def __init__(self, *values: Any) -> None:
        for field, value in zip(self.FIELDS, values, strict=True):
            setattr(self, _name(field), value)

    def to_object(self) -> dict[str, Any]:
        """Return the fields by name, with dictionaries in place of tuples."""
        return _as_dict(self.FIELDS, [getattr(self, _name(field)) for field in self.FIELDS])

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.to_object().items())
        return f"{type(self).__name__}({shown})"


def _name(field: str | tuple[str, Fields]) -> str:
    return field if isinstance(field, str) else field[0]


def _as_dict(fields: Fields, values: Any) -> dict[str, Any]:
    return {
        _name(field): value
        if isinstance(field, str)
        else [_as_dict(field[1], each) for each in value]
        for field, value in zip(fields, values, strict=True)
    }


class CreateTopicsResponse(Response):
    """The outcome of each topic; ``error_code`` is 0 for success."""

    FIELDS: ClassVar[Fields] = (
        "throttle_time_ms",
        ("topic_errors", ("topic", "error_code", "error_message")),
    )


class CreatePartitionsResponse(CreateTopicsResponse):
    """The outcome of each topic."""


class DeleteTopicsResponse(Response):
    """The outcome of each topic; ``error_code`` is 0 for success."""

    FIELDS: ClassVar[Fields] = ("throttle_time_ms", ("topic_error_codes", ("topic", "error_code")))


_RESOURCE = ("error_code", "error_message", "resource_type", "resource_name")


class AlterConfigsResponse(Response):
    """The outcome of each resource; ``error_code`` is 0 for success."""

    FIELDS: ClassVar[Fields] = ("throttle_time_ms", ("resources", _RESOURCE))


class DescribeConfigsResponse(Response):
    """The settings of each resource."""

    FIELDS: ClassVar[Fields] = (
        "throttle_time_ms",
        (
            "resources",
            (
                *_RESOURCE,
                (
                    "config_entries",
                    (
                        *("config_names", "config_value", "read_only"),
                        *("config_source", "is_sensitive"),
                        ("config_synonyms", ("config_name", "config_value", "config_source")),
                    ),
                ),
            ),
        ),
    )


class DescribeGroupsResponse(Response):
    """The members of each group; ``member_metadata`` and ``member_assignment`` are encoded."""

    FIELDS: ClassVar[Fields] = (
        "throttle_time_ms",
        (
            "groups",
            (
                *("error_code", "group", "state", "protocol_type", "protocol"),
                (
                    "members",
                    (
                        *("member_id", "client_id", "client_host"),
                        *("member_metadata", "member_assignment"),
                    ),
                ),
            ),
        ),
    )
