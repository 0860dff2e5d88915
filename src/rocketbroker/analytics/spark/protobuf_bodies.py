"""Bodies in Protobuf as Spark's values, parsed by ``google.protobuf`` in Spark's Python workers.

No release of Spark that has our data sources has its own functions for Protobuf on Maven Central.
"""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import google.protobuf
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketbroker.common.errors import ConfigError

# Descriptors are Any: they are of the implementation in C or of that in Python.
_UNFIT: Final = (OverflowError, pa.ArrowInvalid)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
# By the number of a field's type in Python; those without a sign in the next larger type.
_SIMPLE: Final[Mapping[int, DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
    FieldDescriptor.CPPTYPE_STRING: StringType(),
}


def parse_protobuf(body: Column, message: str, descriptor_file: str) -> Column:
    """Return a struct of the fields of each body, null for one that is no such message.

    Args:
        body: binary column.
        message: name of the message, with or without its package.
        descriptor_file: file by ``protoc --include_imports --descriptor_set_out``; only the driver reads it.

    Raises:
        ConfigError: the file cannot be read, or has no such message, or one that contains itself.
    """
    try:
        descriptors = Path(descriptor_file).read_bytes()
        kind = message_class(descriptors, message)
    except (OSError, DecodeError, TypeError) as error:  # TypeError: files that it imports are not in it
        raise ConfigError(
            f"from_body: descFilePath is {descriptor_file!r}, which cannot be used: {error}; make it by "
            "protoc --include_imports --descriptor_set_out=FILE"
        ) from error
    if not all(hasattr(field, "is_repeated") for field in kind.DESCRIPTOR.fields):
        raise ConfigError(
            f"from_body: protobuf {google.protobuf.__version__} is too old; install a later one at the driver and "
            "at executors (pip install --upgrade protobuf)"
        )
    schema = struct_of(kind.DESCRIPTOR, ())

    def parse(bodies: pa.Array) -> pa.Array:
        return values_of(message_class(descriptors, message), bodies.to_pylist(), to_arrow_type(schema, timezone="UTC"))

    function: Any = arrow_udf  # its types lack structs
    found: Column = function(parse, schema)(body)
    return found


@lru_cache(maxsize=16)
def message_class(descriptors: bytes, name: str) -> Any:
    """Return the class of a message in a set of files; once in each Python worker."""
    pool, found = DescriptorPool(), list[str]()
    for file in FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
        package = f"{file.package}." if file.package else ""
        found += [f"{package}{each}" for each in _names(file.message_type, "")]
    fitting = [each for each in found if each == name] or [each for each in found if each.endswith(f".{name}")]
    if len(fitting) != 1:
        raise ConfigError(f"from_body: there are {len(fitting)} messages {name!r}; name one of {', '.join(found)}")
    return GetMessageClass(pool.FindMessageTypeByName(fitting[0]))


def _names(messages: Iterable[Any], prefix: str) -> Iterable[str]:
    for each in messages:
        if not each.options.map_entry:
            yield f"{prefix}{each.name}"
            yield from _names(each.nested_type, f"{prefix}{each.name}.")


def struct_of(message: Any, within: tuple[str, ...]) -> StructType:
    """Return the type of a message; ``within`` are the messages that contain it."""
    if message.full_name in within:
        raise ConfigError(
            f"from_body: the message {message.full_name} contains itself, which no column can; parse it in a function "
            "of your own"
        )
    inner = (*within, message.full_name)
    return StructType([StructField(field.name, _type_of(field, inner)) for field in message.fields])


def _type_of(field: Any, within: tuple[str, ...]) -> DataType:
    if entry := _map_entry(field):
        key, value = (_single_type(entry.fields_by_name[name], within) for name in ("key", "value"))
        return MapType(key, value)
    single = _single_type(field, within)
    return ArrayType(single) if field.is_repeated else single


def _single_type(field: Any, within: tuple[str, ...]) -> DataType:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        message = field.message_type
        return TimestampType() if message.full_name == _TIMESTAMP else struct_of(message, within)
    return BinaryType() if field.type == FieldDescriptor.TYPE_BYTES else _SIMPLE[field.cpp_type]


def _map_entry(field: Any) -> Any:
    message = field.message_type
    return message if message is not None and message.GetOptions().map_entry else None


def values_of(kind: Any, bodies: Iterable[bytes | None], schema: pa.DataType) -> pa.Array:
    """Return the messages in bodies as an Arrow array; a body that does not fit is null.

    A message may be valid and have values that no column can: a time that is no 64-bit number of microseconds, or
    text of proto2 that is not UTF-8, which is bytes here.
    """
    values = [_parsed(kind, body) for body in bodies]
    try:
        return pa.array(values, schema)
    except _UNFIT:
        return pa.array([value if _fits(value, schema) else None for value in values], schema)


def _fits(value: dict[str, Any] | None, schema: pa.DataType) -> bool:
    try:
        pa.array([value], schema)
    except _UNFIT:
        return False
    return True


def _parsed(kind: Any, body: bytes | None) -> dict[str, Any] | None:
    if body is None:
        return None
    try:
        return _struct(kind.FromString(body))
    except DecodeError:
        return None


def _struct(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    """Return a field's value; one that is not set is null, or its default if it cannot tell."""
    if field.has_presence and not message.HasField(field.name):
        return None
    found = getattr(message, field.name)
    if entry := _map_entry(field):
        key, value = (_single(entry.fields_by_name[name]) for name in ("key", "value"))
        return [(key(each), value(found[each])) for each in found]
    single = _single(field)
    return [single(each) for each in found] if field.is_repeated else single(found)


def _single(field: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of Spark from one of a field."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _micros if field.message_type.full_name == _TIMESTAMP else _struct
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else str(number)
    return Decimal if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else lambda value: value


def _micros(time: Any) -> int:
    return int(time.seconds * 1_000_000 + time.nanos // 1000)
