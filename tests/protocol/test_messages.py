"""The generated messages against kio, a foreign implementation generated from Kafka's own
schemas.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import io
import random
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import PayloadEntityType, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from aioprod._tools.emit import module_name
from aioprod._tools.generate import load_apis
from aioprod._tools.schema import ApiDefinition, Field, Struct
from aioprod._tools.schema import Message as Definition
from aioprod.errors import ProtocolError, UnsupportedVersionError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.protocol.message import Struct as MessagePart
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from aioprod.protocol.messages.produce import ProduceRequest, TopicProduceData
from aioprod.protocol.messages.registry import REQUESTS
from aioprod.protocol.primitives import ZERO_UUID, Writer

APIS = {api.key: api for api in load_apis()}
DEFINITIONS = [definition for api in APIS.values() for definition in (api.request, api.response)]


def versions_of(definition: Definition) -> range:
    return range(definition.versions.first, definition.versions.last + 1)


VERSIONS = [
    (definition, version) for definition in DEFINITIONS for version in versions_of(definition)
]
EVERY_VERSION = [
    pytest.param(definition, version, id=f"{definition.name}-v{version}")
    for definition, version in VERSIONS
]
FEW = settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_KIO_ERROR_CODES = sorted(int(code) for code in KioErrorCode)
#: Times that may be -1 in Kafka, but not in kio.
_NEVER_UNKNOWN_IN_KIO = {
    "transaction_start_time_ms",
    "expiry_timestamp_ms",
    "issue_timestamp_ms",
    "max_timestamp_ms",
}
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def message_class(definition: Definition) -> type[Message]:
    request = REQUESTS[definition.api_key]
    return request if definition.kind == "request" else request.RESPONSE


def scalars(field: Field) -> st.SearchStrategy[Any]:
    """Values of a field's type, within the limits of kio's types for times and error codes."""
    if field.type == "int16" and field.name.endswith("error_code"):
        return st.sampled_from(_KIO_ERROR_CODES)
    if field.name.endswith(("_ms", "timestamp")):
        times = st.integers(0, 2_000_000_000)
        return times if field.name in _NEVER_UNKNOWN_IN_KIO else st.just(-1) | times
    if field.type in _BITS:
        limit = 1 << (_BITS[field.type] - 1)
        return st.integers(-limit, limit - 1)
    others: dict[str, st.SearchStrategy[Any]] = {
        "uint16": st.integers(0, 0xFFFF),
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.just(ZERO_UUID) | st.uuids(),
        "string": st.text(max_size=6) | st.just("x" * 200),
        "bytes": st.binary(max_size=6) | st.just(b"x" * 300),
        "records": st.binary(max_size=6) | st.just(b"x" * 300),
    }
    return others[field.type]


def values(definition: Definition, field: Field, version: int) -> st.SearchStrategy[Any]:
    struct = next((struct for struct in definition.structs if struct.name == field.type), None)
    strategy = scalars(field) if struct is None else structs(definition, struct, version)
    if field.is_array:
        strategy = st.lists(strategy, max_size=2)
    return st.none() | strategy if field.nullable_in(version) else strategy


def structs(definition: Definition, struct: Struct, version: int) -> st.SearchStrategy[Any]:
    """Structs with the fields of a version; other fields keep their defaults."""
    module = importlib.import_module(message_class(definition).__module__)
    present = {
        field.name: values(definition, field, version)
        for field in struct.fields
        if version in field.versions
    }
    return st.builds(getattr(module, struct.name), **present)


def messages(definition: Definition, version: int) -> st.SearchStrategy[Message]:
    return structs(definition, definition.root, version)


# --- the same message in kio's classes ------------------------------------------------------------


def kio_class(definition: Definition, version: int) -> Any:
    entity_type: PayloadEntityType = (
        EntityType.request if definition.kind == "request" else EntityType.response
    )
    if version not in schema_name_map[module_name(APIS[definition.api_key])]:
        return None
    return getattr(load_payload_module(definition.api_key, version, entity_type), definition.name)


NOT_IN_KIO = {
    f"{name}{kind} v{version}"
    for name, version in (("ApiVersions", 5), ("DeleteGroups", 3), ("TxnOffsetCommit", 6))
    for kind in ("Request", "Response")
}
#: Fields of kio that Kafka has renamed since.
RENAMED = {"generation_id": "generation_id_or_member_epoch"}

type_hints = functools.cache(typing.get_type_hints)  # they are text, which is compiled each time


def name_in(struct: Any, name: str) -> str:
    """Our name of a field of kio's."""
    for ours in (name, RENAMED.get(name, name)):
        if hasattr(struct, ours):
            return ours
    return f"{name}_ms"


def to_kio(struct: Any, kio_type: Any) -> Any:
    hints = type_hints(kio_type)
    converted = {}
    for field in dataclasses.fields(kio_type):
        name = name_in(struct, field.name)
        converted[field.name] = kio_value(
            getattr(struct, name), field.metadata.get("kafka_type"), hints[field.name]
        )
    return kio_type(**converted)


def kio_value(value: Any, kafka_type: str | None, hint: Any) -> Any:
    if isinstance(value, list):
        return tuple(kio_value(item, kafka_type, hint) for item in value)
    if isinstance(value, MessagePart):
        return to_kio(value, nested_class(hint))
    if kafka_type == "uuid":
        return None if value == ZERO_UUID else value
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else _EPOCH + datetime.timedelta(milliseconds=value)
    return value


def nested_class(hint: Any) -> Any:
    """The dataclass that a type hint such as ``tuple[X, ...] | None`` names."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next(
        (
            found
            for argument in typing.get_args(hint)
            if (found := nested_class(argument)) is not None
        ),
        None,
    )


@pytest.mark.parametrize(("definition", "version"), EVERY_VERSION)
def test_same_bytes_as_kio_and_read_back_equal(definition: Definition, version: int) -> None:
    kio_type = kio_class(definition, version)
    cls = message_class(definition)
    newest = version == definition.versions.last

    @settings(FEW, max_examples=FEW.max_examples if newest else 3)
    @given(messages(definition, version))
    def check(message: Message) -> None:
        data = message.encode(version)
        assert cls.decode(data, version) == message
        assert cls.decode(memoryview(data), version) == message
        if kio_type is not None:
            entity = to_kio(message, kio_type)
            buffer = io.BytesIO()
            entity_writer(kio_type)(buffer, entity)
            assert data == buffer.getvalue()
            assert entity_reader(kio_type)(data, 0) == (entity, len(data))

    check()


def test_kio_has_every_version() -> None:
    """Without this, the comparison above could become empty. Those of Kafka 4.2 to 4.4 are compared
    with Kafka's schemas only, in test_kafka_schemas.py.
    """
    assert {
        f"{definition.name} v{version}"
        for definition, version in VERSIONS
        if kio_class(definition, version) is None
    } == NOT_IN_KIO


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_defaults_are_those_of_kio(definition: Definition) -> None:
    for version in versions_of(definition):
        kio_type = kio_class(definition, version)
        if kio_type is not None:  # the set of the others is checked above
            compare_defaults(definition, version, kio_type)


def compare_defaults(definition: Definition, version: int, kio_type: Any) -> None:
    kio_module = importlib.import_module(kio_type.__module__)
    module = importlib.import_module(message_class(definition).__module__)
    for struct in [*definition.structs, definition.root]:
        if version not in struct.versions:
            continue
        # If request and response have a struct of the same name, that of the response begins with
        # Response.
        theirs = getattr(kio_module, struct.name, None) or getattr(
            kio_module, struct.name.removeprefix("Response")
        )
        ours = getattr(module, struct.name)()
        for field in dataclasses.fields(theirs):
            if (
                field.default is not dataclasses.MISSING
                and field.metadata.get("kafka_type") is not None
            ):
                name = name_in(ours, field.name)
                assert (
                    kio_value(getattr(ours, name), field.metadata["kafka_type"], None)
                    == field.default
                ), f"v{version} {struct.name}.{name}"


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_garbage_raises_protocol_error_only(definition: Definition) -> None:
    cls = message_class(definition)

    @settings(FEW, max_examples=5)
    @given(
        st.integers(definition.versions.first, definition.versions.last),
        st.data(),
        st.integers(0, 2**32),
    )
    def check(version: int, data: st.DataObject, seed: int) -> None:
        valid = data.draw(messages(definition, version)).encode(version)
        for damaged in damages(valid, random.Random(seed)):
            try:
                cls.decode(damaged, version)
            except ProtocolError:
                pass

    check()


def damages(valid: bytes, rng: random.Random) -> Iterator[bytes]:
    """Truncated, overwritten, extended and random bytes; Hypothesis is slow for this number."""
    for _ in range(60):
        noise = rng.randbytes(rng.choice([1, 1, 2, 4, 50, 200]))
        position = rng.randint(0, len(valid))
        yield noise
        yield valid[:position]
        yield valid[:position] + noise
        yield valid[:position] + noise + valid[position:]
        yield valid[:position] + noise[:4] + valid[position + len(noise[:4]) :]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_truncated_and_overlong_bytes_are_refused(definition: Definition) -> None:
    cls = message_class(definition)
    for version in versions_of(definition):
        data = cls().encode(version)
        for length in range(len(data)):
            with pytest.raises(ProtocolError):
                cls.decode(data[:length], version)
                raise AssertionError(f"{length} bytes of version {version} are decoded")
        with pytest.raises(ProtocolError, match="left over"):
            cls.decode(data + b"\0", version)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_class_constants(api: ApiDefinition) -> None:
    request = REQUESTS[api.key]
    assert request.__name__ == f"{api.name}Request"
    assert request.RESPONSE.__name__ == f"{api.name}Response"
    for cls, definition in ((request, api.request), (request.RESPONSE, api.response)):
        assert [api.key, definition.versions.first, definition.versions.last] == [
            cls.API_KEY,
            cls.MIN_VERSION,
            cls.MAX_VERSION,
        ]
        assert ApiKey(api.key).flexible_from == cls.FLEXIBLE_FROM
    assert module_name(api).upper() == ApiKey(api.key).name


def test_versions_outside_the_range_are_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="3 to 13, not 2"):
        ProduceRequest().encode(2)
    with pytest.raises(UnsupportedVersionError, match="0 to 5, not 6"):
        ApiVersionsRequest.decode(b"", 6)


def test_a_set_field_that_the_version_lacks_is_refused_unless_ignorable() -> None:
    request = FetchRequest(
        rack_id="a",
        topics=[FetchTopic("t", uuid.UUID(int=7), [FetchPartition(0, last_fetched_epoch=3)])],
    )
    with pytest.raises(
        ProtocolError,
        match=r"FetchPartition\.last_fetched_epoch is set, but version 11 does not have it",
    ):
        request.encode(11)
    request.topics[0].partitions[0].last_fetched_epoch = -1
    read_back = FetchRequest.decode(request.encode(10), 10)
    assert read_back.rack_id == ""
    assert read_back.topics[0].topic_id == ZERO_UUID
    assert read_back.topics[0].topic == "t"


def test_none_where_the_version_does_not_allow_it_is_refused() -> None:
    with pytest.raises(
        ProtocolError, match=r"MetadataRequest\.topics must not be None in version 0"
    ):
        MetadataRequest(topics=None).encode(0)
    assert MetadataRequest.decode(MetadataRequest(topics=None).encode(1), 1).topics is None
    with pytest.raises(
        ProtocolError, match=r"MetadataResponseTopic\.name must not be None in version 11"
    ):
        MetadataResponse(topics=[MetadataResponseTopic(name=None)]).encode(11)


def test_fields_before_their_time_get_defaults_on_read() -> None:
    request = MetadataRequest([MetadataRequestTopic(name="t")])
    assert MetadataRequest.decode(request.encode(3), 3).allow_auto_topic_creation is True


def test_unknown_tagged_fields_are_skipped() -> None:
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData("t")])
    data = request.encode(12)
    assert data[-1] == 0  # the request's own tagged fields come last
    writer, field = Writer(), Writer()
    field.string("from the future")
    writer.tagged_fields({5: field, 300: field})
    assert ProduceRequest.decode(data[:-1] + bytes(writer.buffer), 12) == request


def test_defaults_are_not_shared() -> None:
    first, second = ProduceRequest(), ProduceRequest()
    first.topic_data.append(TopicProduceData("t"))
    assert second.topic_data == []
