"""Protobuf files that are built into registries: schemas import them without references.

Google's own files come with the package protobuf. The others are in a table here: a reader needs
only their names, types and numbers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)

_OWN: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}

_TABLE: Final = """
file google/type/calendar_period.proto
enum CalendarPeriod CALENDAR_PERIOD_UNSPECIFIED DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR
file google/type/color.proto google/protobuf/wrappers.proto
message Color
float red 1
float green 2
float blue 3
.google.protobuf.FloatValue alpha 4
file google/type/date.proto
message Date
int32 year 1
int32 month 2
int32 day 3
file google/type/datetime.proto google/protobuf/duration.proto
message DateTime
int32 year 1
int32 month 2
int32 day 3
int32 hours 4
int32 minutes 5
int32 seconds 6
int32 nanos 7
.google.protobuf.Duration utc_offset 8 time_offset
.google.type.TimeZone time_zone 9 time_offset
message TimeZone
string id 1
string version 2
file google/type/dayofweek.proto
enum DayOfWeek DAY_OF_WEEK_UNSPECIFIED MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY
file google/type/decimal.proto
message Decimal
string value 1
file google/type/expr.proto
message Expr
string expression 1
string title 2
string description 3
string location 4
file google/type/fraction.proto
message Fraction
int64 numerator 1
int64 denominator 2
file google/type/interval.proto google/protobuf/timestamp.proto
message Interval
.google.protobuf.Timestamp start_time 1
.google.protobuf.Timestamp end_time 2
file google/type/latlng.proto
message LatLng
double latitude 1
double longitude 2
file google/type/localized_text.proto
message LocalizedText
string text 1
string language_code 2
file google/type/money.proto
message Money
string currency_code 1
int64 units 2
int32 nanos 3
file google/type/month.proto
enum Month MONTH_UNSPECIFIED JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER \
NOVEMBER DECEMBER
file google/type/phone_number.proto
message PhoneNumber
string e164_number 1 kind
.google.type.PhoneNumber.ShortCode short_code 2 kind
string extension 3
message PhoneNumber.ShortCode
string region_code 1
string number 2
file google/type/postal_address.proto
message PostalAddress
int32 revision 1
string region_code 2
string language_code 3
string postal_code 4
string sorting_code 5
string administrative_area 6
string locality 7
string sublocality 8
string* address_lines 9
string* recipients 10
string organization 11
file google/type/quaternion.proto
message Quaternion
double x 1
double y 2
double z 3
double w 4
file google/type/timeofday.proto
message TimeOfDay
int32 hours 1
int32 minutes 2
int32 seconds 3
int32 nanos 4
file confluent/meta.proto google/protobuf/descriptor.proto
message Meta
string doc 1
map params 2
string* tags 3
.confluent.Rule* rules 4
message Rule
string name 1
string doc 2
string expr 3
string sql 4
extend .google.protobuf.FileOptions file_meta
extend .google.protobuf.MessageOptions message_meta
extend .google.protobuf.FieldOptions field_meta
extend .google.protobuf.EnumOptions enum_meta
extend .google.protobuf.EnumValueOptions enum_value_meta
file confluent/type/decimal.proto
message Decimal
bytes value 1
uint32 precision 2
int32 scale 3
file confluent/type/variant.proto
message Variant
bytes metadata 1
bytes value 2
file confluent/types/decimal.proto confluent/type/decimal.proto
"""
"""A line for each file with its imports, followed by its content. ``*``: repeated; a name after
the number: the oneof. ``map`` is a map of strings.
"""

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_META_NUMBER: Final = 1088
_MOVED: Final = "confluent/types/decimal.proto"


@lru_cache(maxsize=1)
def known_imports() -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """Return the files by their paths."""
    found = {
        name: descriptor_pb2.FileDescriptorProto.FromString(each.serialized_pb)
        for name, each in _OWN.items()
    }
    file = descriptor_pb2.FileDescriptorProto()
    message = descriptor_pb2.DescriptorProto()
    for line in _TABLE.replace("\\\n", "").split("\n"):
        kind, *rest = line.split() or [""]
        if kind == "file":
            name, *imports = rest
            file = found[name] = descriptor_pb2.FileDescriptorProto(
                name=name,
                package=name.rpartition("/")[0].replace("/", "."),
                syntax="proto3",
                dependency=imports,
            )
            if name == _MOVED:  # its importers see what it imports
                file.public_dependency.append(0)
                file.ClearField("package")
        elif kind == "message":
            outer, _, inner = rest[0].rpartition(".")
            above = next((each for each in file.message_type if each.name == outer), None)
            message = (file.message_type if above is None else above.nested_type).add(name=inner)
        elif kind == "enum":
            enum = file.enum_type.add(name=rest[0])
            for number, name in enumerate(rest[1:]):
                enum.value.add(name=name, number=number)
        elif kind == "extend":
            _fill(file.extension.add(extendee=rest[0]), ".confluent.Meta", rest[1], _META_NUMBER)
        elif kind:
            _add_field(message, file.package, kind, *rest)
    return found


def _add_field(
    message: descriptor_pb2.DescriptorProto,
    package: str,
    kind: str,
    name: str,
    number: str,
    oneof: str = "",
) -> None:
    field = message.field.add()
    if kind == "map":
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _fill(entry.field.add(), "string", "key", 1)
        _fill(entry.field.add(), "string", "value", 2)
        kind = f".{package}.{message.name}.{entry.name}*"
    _fill(field, kind.removesuffix("*"), name, int(number))
    if kind.endswith("*"):
        field.label = _FIELD.LABEL_REPEATED
    if oneof:
        if oneof not in [each.name for each in message.oneof_decl]:
            message.oneof_decl.add(name=oneof)
        field.oneof_index = [each.name for each in message.oneof_decl].index(oneof)


def _fill(field: descriptor_pb2.FieldDescriptorProto, kind: str, name: str, number: int) -> None:
    field.name, field.number, field.label = name, number, _FIELD.LABEL_OPTIONAL
    if kind.startswith("."):
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, kind
    else:
        field.type = _FIELD.Type.Value(f"TYPE_{kind.upper()}")
